"""Test that uv looks for packages where pip does, and that pip installs where uv cannot."""

from __future__ import annotations

import subprocess
import sys

import install
import pytest


@pytest.fixture
def isolated_pip(tmp_path, monkeypatch):
    """Let pip read one configuration file only, and return that file."""
    for name in [name for name in install.os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    for name in ("XDG_CONFIG_DIRS", "XDG_CONFIG_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "empty"))
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    return tmp_path / "pip.conf"


def listed():
    return subprocess.run([*install.PIP, "config", "list"], capture_output=True, text=True, check=True).stdout


def test_uv_gets_the_indexes_of_pip(isolated_pip, monkeypatch):
    isolated_pip.write_text(
        "[global]\nindex-url = https://one.example/simple\nextra-index-url =\n    https://two.example\n    file:///three\n"
        "timeout = 9\n[install]\nindex-url = https://four.example/simple\nconstraint = bounds.txt\n"
        "[freeze]\nfind-links = of-another-command\n"
    )
    monkeypatch.setenv("PIP_FIND_LINKS", "wheels more-wheels")
    monkeypatch.setenv("PIP_TIMEOUT", "20")
    settings = install.settings_of_pip(listed())
    assert settings["constraint"] == ["bounds.txt"]
    assert (
        install.environment_of_uv(settings).items()
        >= {
            "UV_DEFAULT_INDEX": "https://four.example/simple",
            "UV_INDEX": "https://two.example file:///three",
            "UV_FIND_LINKS": "wheels,more-wheels",
            "UV_HTTP_TIMEOUT": "20",
        }.items()
    )


def test_pip_installs_with_settings_that_uv_cannot_have(isolated_pip, monkeypatch):
    isolated_pip.write_text("[global]\nno-index = true\n")
    with pytest.raises(KeyError):
        install.environment_of_uv(install.settings_of_pip(listed()))
    installed = []
    monkeypatch.setattr(install, "install_by_pip", installed.append)
    monkeypatch.setattr(sys, "argv", ["install.py", "test,docs"])
    install.main()
    assert installed == [".[test,docs]"]


def test_pip_installs_if_uv_cannot_be_installed(isolated_pip, tmp_path, monkeypatch):
    isolated_pip.write_text(f"[global]\nindex-url = {(tmp_path / 'no-such-index').as_uri()}\n")
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("uv==0\n")
    monkeypatch.setattr(install, "CONSTRAINTS", str(constraints))
    assert not install.install_by_uv(".")
