"""How objects show themselves in a notebook: sound HTML that says what is so, and takes no text for markup."""

import time
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
import zerohop as zh
from support.link import until
from zerohop.notebook import timeline

HOSTILE = "<script>alert(1)</script>\"'&amp;<img src=x onerror=alert(1)>"
KNOWN = {
    *("b", "details", "div", "line", "rect", "span", "summary", "svg", "table", "tbody", "td"),
    *("text", "th", "thead", "tr"),
}


class Page(HTMLParser):
    """What a browser makes of it. Raises AssertionError for what is not sound, or does more than show."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.shapes: list[tuple[str, dict[str, str]]] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in KNOWN, tag
        named = {key: value or "" for key, value in attrs}
        assert len(named) == len(attrs), attrs
        for key, value in named.items():
            assert not key.startswith("on"), key
            assert key not in ("href", "src", "class", "id"), key
            assert "url(" not in value, value
        self.open.append(tag)
        self.shapes.append((tag, named))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    @property
    def text(self) -> str:
        return " ".join(self.texts)

    def bars(self) -> list[tuple[float, float, str]]:
        """Begin, width and colour of each, in pixels."""
        rects = [named for tag, named in self.shapes if tag == "rect"]
        return [(float(r["x"]), float(r["width"]), r["fill"]) for r in rects]


def page(thing: Any) -> Page:
    return Page(thing._repr_html_())


@pytest.fixture
def ends():
    with zh.Endpoint("soft0", name="near") as near, zh.Endpoint("soft0", name=HOSTILE) as far:
        yield near, far


@pytest.fixture
def keep_times():
    zh.keep_times()
    yield
    zh.keep_times(False)


def test_a_peer_shows_its_routes_and_traffic(ends):
    near, far = ends
    inbox = far.empty(3000)
    peer = near.connect(far.address)
    for _ in range(2):
        peer.write(np.ones(3000, np.uint8), inbox.remote, require="host", notify=(1, 1)).wait()
    peer.read(inbox.remote, np.zeros(3000, np.uint8)).wait()
    shown = page(peer)
    assert HOSTILE in shown.texts
    assert f"process {peer.pid} on {peer.host}, connected" in shown.texts
    [host] = [row for row in rows(shown) if row[0] == "host over soft0"]
    [copied] = [row for row in rows(shown) if row[0] == "p2p over cpu"]
    assert host == ["host over soft0", "2", "·", "·", "·", "·", "2", "5.859 KiB", "·", "·", "·"]
    assert copied == ["p2p over cpu", "·", "1", "·", "·", "·", "·", "·", "2.93 KiB", "·", "·"]
    widths = [width for _, width, _ in shown.bars()]
    assert widths[:4] == [80, 0, 0, 40]  # of the most, 6000 bytes
    far.close()
    until(lambda: not peer.alive, "it has ended")
    assert f"process {peer.pid} on {peer.host}, lost" in page(peer).texts
    until(
        lambda: any(text.startswith("soft0: ") and "left" in text for text in page(peer).texts),
        "its cause is shown",
    )


def rows(shown: Page) -> list[list[str]]:
    """Of a Peer's table: the cells with text."""
    body = shown.texts[shown.texts.index("failed") + 1 :]
    return [body[at : at + 11] for at in range(0, len(body) - 10, 11)]


def test_an_endpoint_shows_its_peers(ends):
    near, far = ends
    assert "no peer is connected" in page(near).text
    peer = near.connect(far.address)
    shown = page(near)
    assert {HOSTILE, peer.host, str(peer.pid)} <= set(shown.texts)
    assert far.address.hex() not in near._repr_html_()
    near.close()
    assert "on soft0, closed" in page(near).texts


def test_memory_shows_what_it_is_and_no_key(ends):
    near, _ = ends
    memory = near.empty((4, 1000), "float32")
    remote = memory.remote
    assert page(memory).texts[0] == "(4, 1000) float32 on cpu"
    assert "15.62 KiB, writable by peers, registered: host" in page(memory).texts
    assert f"15.62 KiB, read-write, of endpoint {near.id[:8]}" in page(remote).texts
    for shown in (memory._repr_html_(), remote._repr_html_()):
        assert str(remote.address) not in shown
        assert f"{remote.address:x}" not in shown
    fixed = near.register(np.ones(3), writable=False)
    assert "24 B, read-only to peers, registered: host" in page(fixed).texts
    memory.close()
    assert "closed: peers can no longer reach it" in page(memory).text


def test_without_times_a_transfer_says_how_to_get_them(ends):
    near, far = ends
    inbox = far.empty(8, float)
    transfer = near.connect(far.address).write(np.ones(8), inbox.remote)
    transfer.wait()
    assert transfer.times is None
    shown = page(transfer)
    assert shown.texts[0] == "64 B, done"
    assert "zh.keep_times()" in shown.text
    assert not shown.bars()
    assert timeline(transfer).bars == []
    assert "1 without times" in page(timeline(transfer)).text


@pytest.mark.usefixtures("keep_times")
def test_a_transfer_shows_its_times(ends):
    near, far = ends
    peer, inbox = near.connect(far.address), far.empty(8, float)
    before = time.monotonic()
    transfer = peer.write(np.ones(8), inbox.remote, require="host")
    transfer.wait()
    after = time.monotonic()
    times = transfer.times
    assert before <= times["asked"] <= times["begun"] <= times["ended"] <= after
    shown = page(transfer)
    assert shown.texts[0] == "64 B, done"
    assert "64 B by host" in shown.texts
    assert [color for *_, color in shown.bars()][-1] == "#3b82f6"


@pytest.mark.usefixtures("keep_times")
def test_a_transfer_under_way_and_one_that_failed(ends):
    near, far = ends
    peer = near.connect(far.address)
    waiting = peer.recv(np.zeros(8), tag=1)
    assert waiting.times.keys() == {"asked"}
    assert page(waiting).texts[0] == "64 B, under way"
    assert any(text.startswith("under way, ") for text in page(waiting).texts)
    far.close()
    until(lambda: waiting.done, "it has ended")
    shown = page(waiting)
    assert shown.texts[0] == "64 B, failed"
    assert any(text.startswith(f"PeerLost: peer '{HOSTILE}'") for text in shown.texts)
    assert [color for *_, color in shown.bars()] == ["#dc2626"]
    assert "failed" in repr(timeline(waiting))


class Store(dict[str, bytes]):
    """Of one process."""

    set = dict.__setitem__

    def get(self, key: str) -> bytes:
        end = time.monotonic() + 20
        while key not in self:
            assert time.monotonic() < end
        return self[key]


def test_a_world_shows_its_ranks_and_connects_to_none():
    store = Store()
    with (
        zh.World(store, 0, 9, name=HOSTILE, device="soft0") as world,
        zh.World(store, 4, 9, name=HOSTILE, device="soft0") as other,
    ):
        shown = page(world)
        assert shown.texts[0] == HOSTILE
        assert "rank 0 of 9 on soft0" in shown.texts
        assert [text for text in shown.texts if " to " in text] == ["1 to 8"]
        assert world.connected() == []
        peer = world.peer(4)
        shown = page(world)
        assert [text for text in shown.texts if " to " in text] == ["1 to 3", "5 to 8"]
        assert peer.name in shown.texts
        assert shown.texts.count("healthy") == 4
        other.close()
        until(lambda: not peer.alive, "it has ended")
        shown = page(world)
        assert "corrupt" in shown.texts
        assert "rank 0 of 9 on soft0, 1 lost" in shown.texts
    assert any(text.endswith(", closed") for text in page(world).texts)
