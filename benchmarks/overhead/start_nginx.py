"""Start nginx as a bare reverse proxy: one worker, kept connections, no buffering, no log."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from benchmarks.overhead.pinned_process import start_pinned
from benchmarks.overhead.target import Target, find_free_port

_CONFIGURATION = """\
daemon off;
worker_processes 1;
pid {directory}/nginx.pid;
error_log stderr;
events {{ worker_connections 16384; }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    keepalive_requests 100000000;
    tcp_nodelay on;
    upstream engine {{
        server 127.0.0.1:{engine_port};
        keepalive 2048;
        keepalive_requests 100000000;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            proxy_pass http://engine;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
        }}
    }}
}}
"""


def start_nginx(
    stack: ExitStack, nginx: str, directory: Path, engine_port: int, cpu: int
) -> Target:
    """Start nginx before the engine, to be ended by ``stack``."""
    directory.mkdir()
    port = find_free_port()
    configuration = directory / "nginx.conf"
    configuration.write_text(
        _CONFIGURATION.format(directory=directory, port=port, engine_port=engine_port)
    )
    process = start_pinned(
        "nginx",
        [nginx, "-p", str(directory), "-e", "stderr", "-c", str(configuration)],
        cpu=cpu,
        log=directory / "nginx.log",
    )
    stack.callback(process.stop)
    return Target(name="nginx", port=port, process=process)
