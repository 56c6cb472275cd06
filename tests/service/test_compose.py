"""The container and compose.yaml: what they start, started by hand where there is no container engine."""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.decisions import decisions
from support.proxied import free_port

from haybale import Engine

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[2]
HOST = "search.example.org"
NGINX = shutil.which("nginx") or next((path for path in ("/usr/sbin/nginx",) if Path(path).exists()), None)
FRAME = """
{user} daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log; worker_processes 1;
events {{}}
http {{
    access_log off; client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
    uwsgi_temp_path {folder}; scgi_temp_path {folder};
    {server}
}}
"""
USER = "user root;" if os.getuid() == 0 else ""  # who may write to the folders of tests
WAIT_SECONDS = 120


def instructions(name: str) -> list[str]:
    """Return the values of an instruction of the Containerfile."""
    lines = (ROOT / "Containerfile").read_text(encoding="utf-8").splitlines()
    return [line.removeprefix(f"{name} ") for line in lines if line.startswith(f"{name} ")]


def image_environment() -> dict[str, str]:
    pairs = re.findall(r'(\w+)=("[^"]*"|\S*)', instructions("ENV")[0])
    return {name: value.strip('"') for name, value in pairs}


def entrypoint(*arguments: str) -> list[str]:
    (value,) = instructions("ENTRYPOINT")
    ((script, installed),) = [line.split() for line in instructions("COPY") if line.startswith("container/")]
    assert json.loads(value) == [Path(installed).name]
    return [str(ROOT / script), *arguments]


def programs(folder: Path) -> str:
    """Return a PATH on which ``haybale`` is this one."""
    script = folder / "bin" / "haybale"
    script.parent.mkdir(exist_ok=True)
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m haybale "$@"\n')
    script.chmod(0o755)
    return f"{script.parent}:{os.environ['PATH']}"


def interpolated(text: str, environment: dict[str, str]) -> str:
    """Return a text of compose.yaml with its variables, as ``${NAME:-DEFAULT}``."""
    return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda match: environment.get(match[1]) or match[2], text)


def composed(environment: dict[str, str]) -> dict[str, Any]:
    text = (ROOT / "compose.yaml").read_text(encoding="utf-8")
    services: dict[str, Any] = yaml.safe_load(interpolated(text, environment))
    return services


def folders_of(service: dict[str, Any], root: Path) -> dict[str, Path]:
    """Return the files and folders of this machine by their paths in the container."""
    pairs = (volume.split(":")[:2] for volume in service["volumes"])
    return {inside: ROOT / outside if (ROOT / outside).is_file() else root / outside for outside, inside in pairs}


@contextmanager
def running(command: list[str], **how: Any) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **how)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def ask(port: int, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, bytes]:
    """Ask by HTTPS, whoever has signed the certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=context)
    return answered(connection, method, path, body, headers)


def ask_http(port: int, method: str, path: str, **headers: str) -> tuple[int, Any, bytes]:
    return answered(http.client.HTTPConnection("127.0.0.1", port, timeout=60), method, path, None, headers)


def answered(
    connection: http.client.HTTPConnection, method: str, path: str, body: Any, headers: dict[str, str]
) -> tuple[int, Any, bytes]:
    data = None if body is None else json.dumps(body)
    names = {"Host": HOST, "Content-Type": "application/json"} | headers
    connection.request(method, path, data, names)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, answer.headers, content


def wait_until_answered(port: int) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < end:
        try:
            if ask(port, "GET", "/health")[0] == 200:
                return
        except (OSError, http.client.HTTPException):
            pass
        time.sleep(0.1)
    raise AssertionError("the service did not start")


def prepare(root: Path) -> None:
    """Make what ./data and ./tls must hold."""
    Engine.build(decisions(), root / "data" / "engine", language="english", encoder="tfidf(min_df=1)").prepare()
    (root / "tls").mkdir()
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -keyout key.pem -out cert.pem -subj /CN={HOST}"
    subprocess.run(shlex.split(command), cwd=root / "tls", check=True, capture_output=True)


def test_the_command_of_the_container_names_the_host_and_the_proxy(tmp_path: Path) -> None:
    """What the entry point starts, with its environment, and with arguments."""
    script = tmp_path / "haybale"
    script.write_text('#!/bin/sh\nfor argument; do printf "%s\\n" "$argument"; done\n')
    script.chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def started(*arguments: str, **environment: str) -> list[str]:
        variables = path | image_environment() | environment
        how = {"env": variables, "cwd": tmp_path, "capture_output": True, "text": True, "check": True}
        return subprocess.run(entrypoint(*arguments), **how).stdout.splitlines()

    command = started(HAYBALE_HOST=HOST, HAYBALE_PROXY="10.0.0.0/8", HAYBALE_OPTIONS="--https-only --root-path /cases")
    assert command[:2] == ["serve", "engine"]
    options = dict(pairwise(command))
    assert (options["--allow-host"], options["--proxy"]) == (HOST, "10.0.0.0/8")
    assert (options["--users"], options["--judgements"]) == ("users.json", "judgements.sqlite")
    assert command[-3:] == ["--https-only", "--root-path", "/cases"]
    assert started()[-4:] == ["--allow-host", "localhost", "--proxy", "127.0.0.1"]
    several = started(HAYBALE_PROXY="10.0.0.0/8 192.168.0.0/16")
    assert several[-4:] == ["--proxy", "10.0.0.0/8", "--proxy", "192.168.0.0/16"]
    assert started("add-user", "users.json", "Ada Lovelace") == ["add-user", "users.json", "Ada Lovelace"]


@contextmanager
def started_by_hand(root: Path) -> Iterator[tuple[dict[str, int], subprocess.Popen[bytes]]]:
    """Start the commands of compose.yaml with their environment, ports and volumes; yield the ports of nginx.

    Three things differ from containers: ports are free ones, the services find each other at 127.0.0.1, and nginx's
    image fills in the variables of its template itself.
    """
    services = composed({"HAYBALE_HOST": HOST})["services"]
    assert set(services) == {"haybale", "proxy"}
    haybale, proxy = services["haybale"], services["proxy"]
    (work,) = folders_of(haybale, root).values()
    (data,) = instructions("VOLUME")
    assert list(folders_of(haybale, root)) == [data] == instructions("WORKDIR")[1:]
    port = free_port()
    environment = os.environ | image_environment() | haybale["environment"]
    environment |= {"HAYBALE_PORT": str(port), "HAYBALE_PROXY": "127.0.0.1", "PATH": programs(root)}
    places = folders_of(proxy, root)
    template = places.pop("/etc/nginx/templates/default.conf.template").read_text(encoding="utf-8")
    for name, value in proxy["environment"].items():
        template = template.replace(f"${{{name}}}", value)
    template = template.replace("haybale:8000", f"127.0.0.1:{port}")
    ports = {}
    for pair in proxy["ports"]:
        inside = pair.split(":")[1]
        ports[inside] = free_port()
        template, n = re.subn(rf"listen {inside}\b", f"listen 127.0.0.1:{ports[inside]}", template)
        assert n == 1
    for inside, place in places.items():
        assert inside in template
        template = template.replace(inside, str(place))
    (root / "nginx.conf").write_text(FRAME.format(folder=root, server=template, user=USER))
    with (
        running(entrypoint(), env=environment, cwd=work) as service,
        running([str(NGINX), "-c", str(root / "nginx.conf"), "-p", str(root)]),
    ):
        wait_until_answered(ports["443"])
        check = json.loads(instructions("HEALTHCHECK")[0].removeprefix("CMD "))
        assert subprocess.run([sys.executable, *check[1:]], env=environment).returncode == 0
        yield ports, service


@pytest.mark.thorough
@pytest.mark.skipif(NGINX is None or shutil.which("openssl") is None, reason="nginx or openssl is not installed")
def test_what_compose_starts_is_asked_through_the_proxy(tmp_path: Path) -> None:
    prepare(tmp_path)
    how = {"cwd": tmp_path / "data", "env": os.environ | image_environment() | {"PATH": programs(tmp_path)}}
    add = entrypoint("add-user", "users.json", "Ada", "--right", "administer")
    token = subprocess.run(add, **how, check=True, capture_output=True, text=True).stdout.strip()
    walk(tmp_path, started_by_hand, token)


def walk(root: Path, started: Any, token: str) -> None:
    """Ask through the proxy, start everything again, and find what was kept."""
    bearer = {"Authorization": f"Bearer {token}"}
    with started(root) as (ports, _):
        status, headers, _ = ask_http(ports["80"], "GET", "/topics?x=1")
        assert (status, headers["Location"]) == (308, f"https://{HOST}/topics?x=1")
        assert ask_http(ports["80"], "GET", "/health")[0] == 200
        assert ask_http(ports["80"], "GET", "/api/topics", **bearer)[0] == 403
        status, headers, _ = ask(ports["443"], "GET", "/topics", Accept="text/html")
        assert (status, headers["Location"]) == (303, "/login?back=%2Ftopics")
        assert "max-age" in headers["Strict-Transport-Security"]
        status, headers, page = ask(ports["443"], "GET", "/login", Accept="text/html")
        assert status == 200
        assert "Secure" in headers["Set-Cookie"]
        assert ask(ports["443"], "HEAD", "/login")[::2] == (200, b"")
        assert ask(ports["443"], "GET", "/api/topics")[0] == 401
        hits = json.loads(ask(ports["443"], "GET", "/api/search?q=dog", **bearer)[2])["hits"]
        assert hits[0]["doc_id"].startswith("dog/")
        assert ask(ports["443"], "POST", "/api/topics", {"text": "dogs that bite"}, **bearer)[0] == 201
        assert ask(ports["443"], "POST", "/api/search", {"q": "dog " * 1_300_000}, **bearer)[0] == 413
        assert ask(ports["443"], "POST", "/api/search", {"q": "dog " * 1_000_000})[0] == 401  # before it is read
        assert ask(ports["443"], "GET", "/health", Host="evil.example")[0] == 421
        assert b"csrf_token" in page
    with started(root) as (ports, service):
        topics = json.loads(ask(ports["443"], "GET", "/api/topics", **bearer)[2])["topics"]
        assert [topic["text"] for topic in topics] == ["dogs that bite"]
        if service is not None:
            service.send_signal(signal.SIGTERM)
            assert service.wait(60) in (0, -signal.SIGTERM)
            assert ask(ports["443"], "GET", "/health")[0] == 502
    assert (root / "data" / "judgements.sqlite").exists()


def compose_command() -> list[str] | None:
    """Return the command that runs compose files, if there is one and the images that they begin with can be had."""
    images = [instructions("FROM")[0], *re.findall(r"image: (docker\S+)", (ROOT / "compose.yaml").read_text("utf-8"))]
    for command in (["podman-compose"], ["podman", "compose"], ["docker", "compose"]):
        engine = command[0].partition("-")[0]
        if not shutil.which(engine) or not shutil.which(command[0]) or not succeeds(*command, "version"):
            continue
        if all(succeeds(engine, "image", "inspect", image) or succeeds(engine, "pull", image) for image in images):
            return command
    return None


def succeeds(*command: str) -> bool:
    return subprocess.run(command, capture_output=True).returncode == 0


@contextmanager
def started_by_compose(root: Path) -> Iterator[tuple[dict[str, int], None]]:
    command = compose_command()
    assert command is not None
    how: dict[str, Any] = {"env": os.environ | {"HAYBALE_HOST": HOST}, "cwd": root, "check": True}
    with ExitStack() as block:
        block.callback(subprocess.run, [*command, "down"], capture_output=True, **how)
        subprocess.run([*command, "up", "-d", "--build"], capture_output=True, **how)
        wait_until_answered(443)
        yield {"80": 80, "443": 443}, None


@pytest.mark.thorough
def test_compose_itself(tmp_path: Path) -> None:
    command = compose_command()
    if command is None:
        pytest.skip("no container engine, or none of the images that the containers begin with")
    for name in ("Containerfile", "compose.yaml", ".dockerignore", *instructions("COPY")[0].split()[:-1]):
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("haybale", "proxy", "container"):
        shutil.copytree(ROOT / name, tmp_path / name)
    prepare(tmp_path)
    if os.getuid() == 0:  # files of an administrator who is not root
        for path in (tmp_path / "data", *(tmp_path / "data").rglob("*")):
            os.chown(path, 1234, 1234)
    subprocess.run([*command, "build"], cwd=tmp_path, check=True)
    engine = command[0].partition("-")[0]
    add = [
        engine,
        "run",
        "--rm",
        "-v",
        "./data:/data",
        "haybale",
        "add-user",
        "users.json",
        "Ada",
        "--right",
        "administer",
    ]
    token = subprocess.run(add, cwd=tmp_path, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-1]
    walk(tmp_path, started_by_compose, token)
    owners = {path.stat().st_uid for path in (tmp_path / "data").rglob("*")}
    assert owners == {(tmp_path / "data").stat().st_uid}
