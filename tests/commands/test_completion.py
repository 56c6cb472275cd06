"""``--install-completion`` makes shells complete commands and options."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# What bash runs when the completion key is pressed after two words; _haybale_completion is what was installed.
PRESS_THE_KEY = """
source ~/.bash_completions/haybale.sh
for line in "haybale comp" "haybale compare --rank" "haybale report --ou"; do
    IFS=' ' read -r -a COMP_WORDS <<< "$line"
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _haybale_completion haybale
    echo "${COMPREPLY[@]}"
done
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_commands_and_options_after_the_installation(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "haybale"
    script.write_text(f"#!{sys.executable}\nfrom haybale.cli import main\nmain()\n", encoding="utf-8")
    script.chmod(0o755)
    environment = os.environ | {"HOME": str(tmp_path), "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))

    def bash(code: str) -> str:
        # The shell stays the parent process of haybale, which reads the shell's name from it.
        done = subprocess.run(["bash", "-c", code], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "restart" in bash("haybale --install-completion; exit $?")
    assert "haybale.sh" in (tmp_path / ".bashrc").read_text(encoding="utf-8")
    assert bash(PRESS_THE_KEY).splitlines() == ["compare", "--rankers", "--out"]
    assert "_haybale_completion()" in bash("haybale --show-completion; exit $?")
