"""Write a template as one HTML file with its style sheet and script inside.

The content security policy of the page allows its own script, which it names by hash, and forbids all others and all
network access.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from haybale.drawing import clean
from haybale.extras import import_optional
from haybale.folders import whole_file, write_or_rescue


def write_page(out: Path, template: Traversable, content: Mapping[str, Any]) -> None:
    """Write a page to a file; an existing one is replaced. The parameters are those of :func:`render_page`."""
    page = render_page(template, content)
    write_or_rescue(lambda path: _write(path, page), out)


def render_page(template: Traversable, content: Mapping[str, Any]) -> str:
    """Return a page.

    Parameters
    ----------
    template : Traversable
        The file of the template, which extends ``frame.html``.
    content : mapping of str to object
        The variables of the template; texts are escaped.
    """
    jinja2, markup = import_optional("jinja2", "reports"), import_optional("markupsafe", "reports").Markup
    palette, theme = ((files("haybale") / name).read_text(encoding="utf-8") for name in ("palette.css", "theme.js"))
    style, script = palette + _file("page.css"), theme + _file("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_file),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: clean(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page: str = environment.from_string(template.read_text("utf-8")).render(
        **content,
        style=markup(style),
        script=markup(script),
        policy=f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'",
    )
    return page


def _file(name: str) -> str:
    return (files("haybale.reports") / name).read_text(encoding="utf-8")


def _write(path: Path, page: str) -> None:
    with whole_file(path) as file:
        file.write(page)
