"""A crawler: jobs that enqueue jobs, each page once, however many links lead to it.

The site is made up and served from this process, on the loopback interface only.

    python -m examples.crawler                          once, with a summary at its end
    rowlock --app examples.crawler:app up --drain       the same by a worker
"""

from __future__ import annotations

import os
import re
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import urljoin, urlsplit

import rowlock

PAGES = 12


class Crawler:
    """The app's own state; `rowlock up` calls `on_up` once at its start."""

    def on_up(self) -> None:
        discover.enqueue(start=serve_site())


url = os.environ.get("ROWLOCK_DATABASE_URL", "sqlite:///rowlock.db")
app = rowlock.App(url, state=Crawler())


@app.task(queue="crawl")
def discover(start: str) -> None:
    """The first page of a crawl; its port is part of every key, so the next crawl is a new one."""
    page.using(key=start, key_hold="kept").enqueue(url=start, depth=0)


@app.task(queue="crawl", retry=rowlock.retry.fixed(0), max_attempts=5)
def page(ctx: rowlock.Context, url: str, depth: int) -> int:
    """Read a page, and enqueue what it links to: a page again, an image with less haste."""
    try:
        text = fetch(url).decode()
    except urllib.error.HTTPError as error:
        if error.code == 429:
            # The site asks for patience. Given back, the job has not used up an attempt.
            raise rowlock.Release(delay=0, reason="asked to slow down") from None
        if error.code == 404:
            raise rowlock.Fail(f"{urlsplit(url).path} is not there") from None
        raise  # Anything else may pass: another attempt, at once.
    links = [urljoin(url, link) for link in re.findall(r'href="([^"]+)"', text)]
    for number, link in enumerate(links):
        ctx.progress(number / len(links), link)
        # Many pages link to the same one: the key makes them all the same job, also when it has
        # ended, for as long as its row is kept.
        ctx.enqueue_on_success(page.using(key=link, key_hold="kept"), url=link, depth=depth + 1)
    for link in re.findall(r'src="([^"]+)"', text):
        image = urljoin(url, link)
        ctx.enqueue_on_success(
            save_image.using(key=image, key_hold="kept", priority=-10), url=image
        )
    return len(links)


@app.task(queue="crawl")
async def save_image(ctx: rowlock.Context, url: str) -> int:
    """A coroutine, for the sake of showing one."""
    ctx.log(f"image {urlsplit(url).path}")
    return len(url)


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:
        body: bytes = answer.read(100_000)
        return body


# The site: a few pages that link to each other, one that is missing, one that is busy at first.


class Site(BaseHTTPRequestHandler):
    """Page N links to 2N and 2N + 1, and back to the first."""

    asked: ClassVar[Counter[str]] = Counter()

    def do_GET(self) -> None:
        self.asked[self.path] += 1
        name = self.path.strip("/") or "1"
        number = int(name) if name.isdecimal() else 0
        if not 0 < number <= PAGES:
            self.answer(404)
        elif number == 3 and self.asked[self.path] == 1:
            self.answer(503)
        elif number == 5 and self.asked[self.path] == 1:
            self.answer(429)
        else:
            links = [f'<a href="/{n}">' for n in (1, 2 * number, 2 * number + 1) if n <= PAGES + 1]
            self.answer(200, f'{"".join(links)}<img src="/{number}.png">')

    def answer(self, status: int, text: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def serve_site() -> str:
    """Serve the site for as long as this process lives; its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/1"


def main() -> None:
    """Crawl to the end, here, and say what became of the jobs."""
    app.state.on_up()
    while app.drain(["crawl"]) or app.list(state="retrying", queue="crawl").jobs:
        time.sleep(0.05)
    ended = Counter((job.kind, str(job.state)) for job in app.list(queue="crawl"))
    for (kind, state), count in sorted(ended.items()):
        print(f"{count} × {kind}: {state}")


if __name__ == "__main__":
    main()
