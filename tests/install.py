"""Install haybale, editable, with extras, in the versions of constraints.txt: by uv, or by pip where uv does not work.

    PYTHON tests/install.py [EXTRA,EXTRA]        into the environment of this Python

uv installs what pip installs in half of its time. It reads neither pip's configuration nor the variables of pip's
environment, so the settings that say where packages are become those of uv here. If pip has a setting that this file
does not know, then pip installs.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Mapping

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
CONSTRAINTS = "constraints.txt"
# The variable of uv's environment for a setting of pip, and what separates several values.
VARIABLES = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "cert": ("SSL_CERT_FILE", " "),
    "timeout": ("UV_HTTP_TIMEOUT", " "),
    "default-timeout": ("UV_HTTP_TIMEOUT", " "),
}
# Settings of pip that do not change what is installed.
WITHOUT_EFFECT = {
    "cache-dir", "config-file", "disable-pip-version-check", "no-cache-dir", "no-color", "no-compile", "no-input",
    "progress-bar", "quiet", "require-virtualenv", "retries", "root-user-action",
}  # fmt: skip


def settings_of_pip(listed: str) -> dict[str, list[str]]:
    """Return the values of each setting that ``pip config list`` prints and that ``pip install`` uses.

    A variable of the environment replaces a setting of the command in the files, and this one of all commands.
    """
    settings: dict[str, dict[str, list[str]]] = {"global": {}, "install": {}, ":env:": {}}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        section, _, option = name.partition(".")
        if section in settings:
            settings[section][option] = str(ast.literal_eval(value)).split()
    return settings["global"] | settings["install"] | settings[":env:"]


def environment_of_uv(settings: Mapping[str, list[str]]) -> dict[str, str]:
    """Return the variables that tell uv what settings tell pip; KeyError for a setting that has none."""
    settings = {option: values for option, values in settings.items() if option not in {"constraint", *WITHOUT_EFFECT}}
    return {VARIABLES[option][0]: VARIABLES[option][1].join(values) for option, values in settings.items()}


def install_by_uv(requirement: str) -> bool:
    """Return whether uv is there, or can be installed, and has installed a requirement."""
    listed = subprocess.run([*PIP, "config", "list"], stdout=subprocess.PIPE, text=True, check=True).stdout
    settings = settings_of_pip(listed)
    try:
        environment = environment_of_uv(settings) | os.environ
    except KeyError:
        return False
    uv = [*PIP, "install", "-qq", "--no-compile", "--only-binary", ":all:", "-c", CONSTRAINTS, "uv"]
    if subprocess.run(uv, check=False).returncode:
        return False
    constraints = [option for path in (CONSTRAINTS, *settings.get("constraint", [])) for option in ("-c", path)]
    # Of the versions on all indexes, the highest one is taken, as pip does.
    options = ["--python", sys.executable, "--index-strategy", "unsafe-best-match", *constraints]
    install = [sys.executable, "-m", "uv", "pip", "install", "-q", *options, "-e", requirement]
    return not subprocess.run(install, env=environment, check=False).returncode


def install_by_pip(requirement: str) -> None:
    """Install a requirement by pip, without compiling modules: most of them are never imported."""
    # The pip that comes with Python 3.11 takes twice as long to choose the versions of the packages.
    subprocess.run([*PIP, "install", "-q", "--upgrade", "pip>=26"], check=True)
    subprocess.run([*PIP, "install", "-q", "--no-compile", "-c", CONSTRAINTS, "-e", requirement], check=True)


def main() -> None:
    requirement = f".[{sys.argv[1]}]" if len(sys.argv) > 1 else "."
    if not install_by_uv(requirement):
        print("uv cannot install here; pip does, which takes longer", file=sys.stderr)
        install_by_pip(requirement)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
