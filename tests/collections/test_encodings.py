"""Encodings of texts are recognised, or named where they are guessed; no text is read in other letters untold."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haybale.collections.files.encodings import codec_of, decode_declared, decode_text
from haybale.collections.files.file_reader import Unreadable, read_documents, reader_of

TEXTS = st.text(st.characters(exclude_categories=["Cc", "Cn", "Co", "Cs"], exclude_characters="\ufffd"), max_size=60)
# Sentences in languages whose older texts are not in Unicode, and their usual encodings there.
SENTENCES = {
    "Der Mieter schuldet für die Übergabe der Schlüssel eine Gebühr von 50 €.": ("cp1252", "cp850", "mac_roman"),
    "La propriétaire a résilié le bail après l’été, à cause des dégâts.": ("cp1252", "cp850", "mac_roman"),
    "El inquilino pagó la fianza y recibió las llaves después del año.": ("cp1252", "cp850"),
    "Договор аренды квартиры заключён сторонами на один год.": ("cp1251", "koi8_r", "iso8859_5", "cp866"),
    "Žaloba byla zamítnuta, protože nájemce neprokázal škodu na bytě.": ("cp1250", "iso8859_2", "cp852"),
    "Sąd oddalił powództwo w całości i zasądził zwrot kosztów.": ("cp1250", "iso8859_2"),
    "Η σύμβαση μίσθωσης λήγει στο τέλος του έτους και ανανεώνεται.": ("cp1253", "iso8859_7"),
    "Kira sözleşmesi yıl sonunda sona erer ve depozito iade edilir.": ("cp1254",),
    "הסכם השכירות מסתיים בסוף השנה והפיקדון מוחזר.": ("cp1255",),
    "ينتهي عقد الإيجار في نهاية السنة ويعاد التأمين.": ("cp1256",),
    "賃貸借契約は本年の末日をもって終了する。敷金は返還される。": ("shift_jis", "euc_jp", "iso2022_jp"),
    "租赁合同自签订之日起生效，押金在合同终止后退还。": ("gb18030",),
    "租賃合同自簽訂之日起生效，押金在合同終止後退還。": ("big5",),
    "임대차 계약은 연말에 종료되며 보증금은 반환된다.": ("euc_kr",),
}
CASES = [(text, codec) for text, codecs in SENTENCES.items() for codec in codecs]


@given(TEXTS, st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32"]))
def test_unicode_is_read_without_a_reservation(text: str, codec: str) -> None:
    try:
        decoded = decode_text(text.encode(codec))
    except Unreadable:
        assert "\x00" in text.encode(codec).decode("latin-1")
        return
    if codec == "utf-8" and text.encode().count(0):
        return
    assert decoded.text == text
    assert decoded.reservation is None


@pytest.mark.parametrize(("text", "codec"), CASES)
def test_another_encoding_is_recognised_or_named(text: str, codec: str) -> None:
    decoded = decode_text(text.encode(codec, errors="replace"))
    readable = text.encode(codec, errors="replace").decode(codec)
    assert decoded.text == readable or decoded.encoding in str(decoded.reservation)
    if codec == "cp1252":
        assert decoded[:] == (text, "cp1252", None)


@pytest.mark.parametrize(("text", "codec"), CASES)
def test_a_declared_encoding_is_taken(text: str, codec: str) -> None:
    data = text.encode(codec, errors="replace")
    name = codec.replace("_", "-").replace("iso8859", "iso-8859")
    decoded = decode_declared(data, name)
    assert (decoded.text, decoded.reservation) == (data.decode(codec), None)


@given(
    TEXTS.filter(lambda text: not text.isascii() and "\x00" not in text), st.sampled_from(["x-unknown", "%CHARSET%"])
)
def test_an_unknown_name_is_told_and_the_text_is_kept(text: str, name: str) -> None:
    decoded = decode_declared(text.encode(), name)
    assert codec_of(name) is None
    assert name in str(decoded.reservation)
    assert decoded.text == text or "utf-16" in decoded.encoding


@given(
    st.lists(st.sampled_from(["Gebühr für Öl", "Straße", "naïve – “x”"]), min_size=10, max_size=20), st.integers(0, 9)
)
def test_a_line_in_another_encoding_than_the_rest_is_told(lines: list[str], number: int) -> None:
    data = [line.encode() for line in lines]
    data[number] = "Gebühr".encode("cp1252")
    decoded = decode_text(b"\n".join(data))
    assert decoded.text == "\n".join([*lines[:number], "Gebühr", *lines[number + 1 :]])
    assert f"line {number + 1};" in str(decoded.reservation)


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.csv", "a.jsonl", "a.ris", "a.html"])
def test_a_guessed_encoding_is_listed_for_each_format(name: str) -> None:
    text = "Договор аренды заключён сторонами"
    content = {
        "a.csv": f"id,text\n1,{text}",
        "a.jsonl": f'{{"text": "{text}"}}',
        "a.ris": f"TY  - JOUR\nTI  - {text}\nAB  - {text}\nER  - ",
    }.get(name, text)
    reader = reader_of(name)
    assert reader is not None
    documents, unread = read_documents(reader, content.encode("cp1251"), {})
    assert documents[0].parts[0].text == text
    assert [(part.part, "cp1251" in part.reason) for part in unread] == [("encoding", True)]


@given(st.binary(min_size=1, max_size=100))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    for charset in (None, "utf-8", "iso-8859-1", "x-unknown", "utf-7", "base64"):
        with suppress(Unreadable):
            assert decode_declared(data, charset).encoding
