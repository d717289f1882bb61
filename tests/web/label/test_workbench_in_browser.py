"""The workbench in a real browser, by keys and mouse: every screen does what it says."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from served_workbenches import (
    CHROMIUM,
    MARKUP,
    Served,
    Window,
    chromium,
    put_markup_into_a_name,
)
from small_workbenches import small_model

pytest.importorskip("playwright.sync_api")
pytest.importorskip("fastapi")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")

SCREENS = ("overview", "classes", "class/0", "new", "next", "random", "map", "images/all",
           "similar/3", "problems", "refit", "export")  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = small_model(tmp_path_factory.mktemp("fresh"), pool=120)
    put_markup_into_a_name(model)
    return model


@pytest.fixture(scope="module")
def served(fresh: Path, browser: Any) -> Iterator[tuple[Served, Any]]:
    """A server, and a context of the browser that has its cookie."""
    server = Served(fresh)
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.goto(server.entry)
    page.wait_for_selector("main h1")
    page.close()
    yield server, context
    context.close()
    server.stop()


@pytest.fixture
def window(served: tuple[Served, Any]) -> Iterator[Window]:
    server, context = served
    shown = Window(context.new_page(), server.address)
    yield shown
    assert shown.errors == []
    shown.page.close()


def test_labels_by_keys_alone_and_every_key_is_undone(window: Window) -> None:
    window.open("overview")
    before = window.labels()
    window.press("g", "l")
    window.page.wait_for_selector(".tile .line.suggested")
    first = window.page.locator(".tile.active")
    assert first.get_attribute("data-place") == "0"
    window.press("1")
    window.says("Labeled 1 image as ash")
    assert window.page.locator(".tile.active").get_attribute("data-place") == "1"
    window.press("0")
    window.wait_for_labels(ash=before["ash"] + 1, none=before["none"] + 1)
    window.press("s")
    window.says("Skipped 1 image")
    assert window.page.locator(".toast").count() == 1  # its button undoes the last change alone
    window.press("Space", "ArrowRight", "Space")
    window.bar("2 images selected")
    window.press("n")
    window.type("a new kind")
    window.wait_for_labels(**{"a new kind": 2})
    window.press("z")  # the class goes with its labels
    window.wait_for_labels(ash=before["ash"] + 1, none=before["none"] + 1)
    assert "a new kind" not in window.labels()
    window.press("Shift+Z")
    window.wait_for_labels(**{"a new kind": 2})
    window.press("z", "z", "z", "z")
    window.wait_for_labels(**before)
    window.says("Undone: ")
    window.press("Shift+Z")
    window.wait_for_labels(ash=before["ash"] + 1)
    window.press("z")
    window.wait_for_labels(**before)


def test_one_key_takes_all_suggestions_and_one_gives_them_back(window: Window) -> None:
    window.open("next")
    window.page.wait_for_selector(".tile .line.suggested")
    before, batch = window.labels(), window.tiles()
    assert 12 <= batch <= 24
    seen = window.page.locator(".tile").first.get_attribute("aria-label")
    window.press("Shift+Enter")
    window.wait_for_labels(unlabeled=before["unlabeled"] - batch)
    window.page.wait_for_function(
        "seen => document.querySelector('.tile')?.ariaLabel !== seen"
        " && document.querySelector('.tile .line.suggested')",
        arg=seen,
    )
    window.open("overview")  # the page is read anew and knows nothing of the key
    window.page.reload()
    window.page.wait_for_selector("main h1")
    window.press("z")
    window.wait_for_labels(**before)
    window.says(f"Undone: label {batch} images in ")


def test_long_names_on_the_bar_give_way_to_short_ones(window: Window) -> None:
    window.open("images/unlabeled")
    before = window.labels()
    for name in ("a", "b", "c"):
        window.press("n")
        window.type(name + " very long name" * 6)
    names = window.page.locator("#bar button.class > span")
    names.nth(5).wait_for()
    found = names.evaluate_all(
        "all => all.map(one => [one.innerText.length > 10, one.scrollWidth > one.clientWidth])"
    )
    assert found == [[False, False]] * 3 + [[True, True]] * 3
    window.page.set_viewport_size({"width": 375, "height": 740})  # there they are scrolled to
    widths = names.evaluate_all("all => all.map(one => one.clientWidth)")
    assert min(widths[3:]) > 80
    window.press("z", "z", "z")
    window.wait_for_labels(**before)


def test_the_rail_stays_when_one_scrolls_to_the_end(window: Window) -> None:
    window.open("images/all")
    window.page.locator("#bar").wait_for()
    window.page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    window.page.wait_for_function(
        "() => scrollY > 0 && scrollY + innerHeight >= document.documentElement.scrollHeight - 1"
    )
    assert window.page.evaluate("document.getElementById('rail').getBoundingClientRect().top") == 0


def test_an_address_that_is_none_opens_a_screen(window: Window) -> None:
    for address, heading in (("%E0%A4%A", "Overview"), ("problems/none", "Problems")):
        window.open("images/all")
        window.page.evaluate("address => { location.hash = `#/${address}`; }", address)
        window.page.locator("main:not([aria-busy]) h1", has_text=heading).wait_for()
        assert window.page.locator("main [role=alert]").count() == 0


def test_selects_by_click_shift_space_and_all(window: Window) -> None:
    window.open("images/unlabeled")
    before = window.labels()
    tiles = window.page.locator(".tile")
    tiles.nth(2).click()
    window.bar("1 image selected")
    tiles.nth(5).click(modifiers=["Shift"])
    window.bar("4 images selected")
    window.press("ArrowRight", "Space")
    window.bar("5 images selected")
    window.press("2")
    window.says("Labeled 5 images as birch")
    window.press("a")
    window.bar(f"{before['unlabeled']} images selected")
    window.press("0")
    window.wait_for_labels(unlabeled=0)
    window.press("z", "z")
    window.wait_for_labels(**before)
    window.press("Escape", "Backspace")
    assert window.page.locator(".tile .line.labeled").count() == 0


def test_a_refusal_is_shown_and_taken_back(window: Window) -> None:
    window.open("images/unlabeled")
    answer = {"status": 400, "json": {"error": "No such <b>luck</b> today."}}
    window.page.route("**/api/actions", lambda route: route.fulfill(**answer))
    window.press("1")
    window.says("No such <b>luck</b> today.")
    assert window.page.locator(".tile .line.labeled").count() == 0
    window.page.unroute("**/api/actions")


def test_a_lasso_on_the_map_selects_and_so_do_the_keys(window: Window) -> None:
    window.open("map")
    before = window.labels()
    box = window.page.locator("canvas").bounding_box()
    left, top = box["x"] + 2, box["y"] + 2
    right, bottom = box["x"] + box["width"] - 2, box["y"] + box["height"] - 2
    mouse = window.page.mouse
    mouse.move(left, top)
    mouse.down()
    for x, y in ((right, top), (right, bottom), (left, bottom)):
        mouse.move(x, y, steps=3)
    mouse.up()
    total = window.get("/api/overview")["rows"]
    window.bar(f"{total} images selected")
    window.page.wait_for_selector(".map-scroller .tile")
    window.press("Escape")
    window.page.locator(".legend .group").first.click()
    window.page.locator("#bar strong", has_text=re.compile(r"^\d+ images selected")).wait_for()
    window.press("Escape")
    sign = "color => getComputedStyle(document.querySelector('.legend .sign')).color === color"
    for scheme, color in (("dark", "rgb(86, 180, 233)"), ("light", "rgb(0, 114, 178)")):
        window.page.emulate_media(color_scheme=scheme)
        window.page.wait_for_function(sign, arg=color)
    window.page.locator("canvas").focus()
    window.press(*["]"] * 8, "Space")
    window.page.wait_for_selector(".map-scroller .tile")
    window.press("0")
    window.says("as none of these")
    assert window.labels()["none"] > before["none"]
    window.press("z")
    window.wait_for_labels(**before)


def test_clusters_are_named_split_merged_promoted_and_thrown_out(window: Window) -> None:
    window.open("new")
    before, clusters = window.labels(), window.get("/api/clusters")
    size = clusters[0]["size"]
    assert size > 3
    cards = window.page.locator(".cluster h2")
    window.press("r")
    window.type("a kind of tree")
    window.page.locator(".cluster h2", has_text="a kind of tree").wait_for()
    window.press("x")
    window.page.locator("dialog .choice").first.click()
    window.says("Split a cluster into 2")
    window.counts(".cluster h2", len(clusters) + 1)
    window.press("z")
    window.says("Undone: ")
    window.counts(".cluster h2", len(clusters))
    if len(clusters) > 1:
        several = size + clusters[1]["size"]
        window.press("Space", "ArrowRight", "Space", "j")
        window.wait_for_labels(none=before["none"] + several)
        window.press("z")
        window.wait_for_labels(**before)
        cards.first.locator("xpath=ancestor::div[@role='listitem']").focus()
        window.press("Space", "ArrowRight", "Space", "p")
        window.type("several")
        window.wait_for_labels(several=several)
        window.press("z")
        window.wait_for_labels(**before)
        cards.first.locator("xpath=ancestor::div[@role='listitem']").focus()
        window.press("Space", "ArrowRight", "Space", "m")
        window.says("Merged 2 clusters")
        window.counts(".cluster h2", len(clusters) - 1)
        window.press("z")
        window.counts(".cluster h2", len(clusters))
    cards.first.locator("xpath=ancestor::div[@role='listitem']").focus()
    window.press("j")
    window.wait_for_labels(none=before["none"] + size)
    window.press("z")
    window.wait_for_labels(**before)
    cards.first.locator("xpath=ancestor::div[@role='listitem']").focus()
    window.press("p")
    window.type("elm")
    window.wait_for_labels(elm=size)
    window.page.locator(".class-list", has_text="elm").wait_for()
    window.press("z", "z")
    window.wait_for_labels(**before)


def test_a_class_is_renamed_and_merged_and_markup_in_names_is_text(window: Window) -> None:
    window.open("class/1")
    before = window.labels()
    window.press("r")
    window.type("<script>alert(1)</script>")
    window.page.locator("h1", has_text="<script>alert(1)</script>").wait_for()
    window.page.locator(".class-list", has_text="<script>alert(1)</script>").wait_for()
    for route in ("overview", "classes", "next", "map", "images/all"):
        window.open(route)
    assert window.page.locator("body script").count() == 0
    rows = window.get("/api/images?set=all&only=rows")["rows"]
    window.open(f"similar/{rows[-1]}")
    window.page.locator(".path", has_text=MARKUP).wait_for()
    assert window.page.title() != "caught"
    assert window.page.locator("img[src=x]").count() == 0
    window.open("class/1")
    window.press("m")
    window.type("cedar")
    merged = before["birch"] + before["cedar"]
    window.wait_for_labels(cedar=merged)
    window.page.wait_for_selector("main[data-screen=classes]")
    window.press("z", "z")
    window.wait_for_labels(**before)


def test_sub_classes_are_acted_on(window: Window) -> None:
    window.open("overview")
    wide = [one for one in range(3) if len(kinds(window, one)) > 1]
    if not wide:
        pytest.skip("the small model found one kind in every class")
    window.open(f"class/{wide[0]}")
    before = window.labels()
    first = kinds(window, wide[0])[0]
    window.page.locator(".kind").first.focus()
    window.press("r")
    window.type("the pale kind")
    window.page.locator(".kind h3", has_text="the pale kind").wait_for()
    window.page.locator(".kind", has_text="the pale kind").focus()
    window.press("p")
    window.type("pale")
    window.wait_for_labels(pale=first["size"])
    window.press("z")
    window.wait_for_labels(**before)
    window.page.locator(".strip-head button", has_text="Not a real division").click()
    window.page.locator("section", has_text="None are kept").last.wait_for()
    window.press("z", "z")
    window.page.locator(".kind").first.wait_for()


def kinds(window: Window, class_id: int) -> list[dict[str, Any]]:
    found = window.get(f"/api/classes/{class_id}")["subclasses"]
    return [one for one in found if one["size"] and not one["dissolved"]]


def test_the_random_queue_shows_no_suggestion(window: Window) -> None:
    window.open("images/all")
    window.press("s")
    window.says("Skipped 1 image")
    window.page.evaluate("location.hash = '#/random'")  # not read anew: it remembers the skip
    window.page.locator("button", has_text="Draw 30 images at random").click()
    window.page.wait_for_selector(".tile")
    assert window.page.locator(".tile .line.suggested, .tile .line.accepted").count() == 0
    assert window.page.locator(".inspector dt", has_text="Model").count() == 0
    before = window.labels()
    window.press("1", "2", "0")
    window.wait_for_labels(ash=before["ash"] + 1, birch=before["birch"] + 1)
    window.page.locator(".progress-line", has_text="3 of 30 images answered").wait_for()
    window.press("z", "z", "z", "z")
    window.page.locator("button", has_text="Draw 30 images at random").wait_for()
    window.wait_for_labels(**before)
    window.press("z")
    window.says("Undone: skip 1 image")


def test_similar_images_and_what_they_were_called(window: Window) -> None:
    window.open("images/all")
    window.press("g", "s")  # of the first image, whose row is 0
    window.page.wait_for_selector("main[data-screen=similar]:not([aria-busy]) .tile")
    window.open("images/all")
    window.press("ArrowRight", "f")
    window.page.wait_for_selector("main[data-screen=similar]:not([aria-busy]) .tile")
    assert "no label" in window.page.locator(".tally").inner_text()
    before = window.labels()
    window.press("End", "Backspace", "3")
    window.page.wait_for_selector(".tile .line.labeled")
    window.press("z", "z")
    window.wait_for_labels(**before)


def test_problems_are_listed(window: Window) -> None:
    window.open("problems/unreadable")
    window.page.locator("table", has_text="it is cut short").wait_for()
    doubts = window.get("/api/problems")["doubts"]
    window.open("problems/doubts")
    if not doubts:
        window.page.locator(".empty", has_text="No label is in doubt").wait_for()
        return
    window.press("k")
    window.says("Kept the label of 1 image")
    window.page.locator(".tile", has_text="kept by you").wait_for()
    window.press("z")
    window.page.locator(".tile", has_text="kept by you").wait_for(state="detached")


def test_a_group_of_near_duplicates_is_labeled_by_one_key(window: Window) -> None:
    window.open("overview")
    problems = window.get("/api/problems")
    tab = "copies" if problems["copies"] else "near_duplicates"
    group = problems[tab][0]
    assert len(group) > 1
    before = window.labels()
    window.open(f"problems/{tab}")
    card = window.page.locator(".pair").first
    card.wait_for()
    window.press("ArrowRight", "2")
    window.says(f"Labeled {len(group)} images as birch")
    window.page.wait_for_function(
        "number => [...document.querySelector('.pair').querySelectorAll('small')]"
        ".filter(one => one.textContent === 'birch').length === number",
        arg=len(group),
    )
    assert not card.locator(".tag").is_visible()
    window.press("z")
    window.wait_for_labels(**before)


def test_exports_a_table_that_can_be_downloaded(window: Window) -> None:
    window.open("export")
    window.page.locator("input[value=csv]").check()
    window.page.locator("button", has_text="Export").last.click()
    link = window.page.locator("a.button", has_text="Download")
    link.wait_for()
    with window.page.expect_download() as download:
        link.click()
    text = Path(download.value.path()).read_text()
    assert len(text.splitlines()) == 61  # a heading, and 20 labels of each of three classes
    assert "ash" in text


def test_exports_by_keys_in_the_format_that_the_arrows_chose(window: Window) -> None:
    window.open("export")
    for _ in range(40):
        if window.page.evaluate("document.activeElement.name") == "format":
            break
        window.press("Tab")
    window.press("ArrowUp")
    assert window.page.evaluate("document.activeElement.value") == "list"
    window.press("Enter")
    window.page.locator("a.button", has_text="Download").wait_for()
    assert window.page.locator(".export-result .path").inner_text().endswith("labeled-list.csv")


def test_an_export_says_how_many_images_it_left_out(window: Window) -> None:
    window.open("images/unlabeled")
    before = window.labels()
    assert before["unlabeled"] > 100  # the answer names no more
    window.press("a", "0")
    window.wait_for_labels(unlabeled=0)
    window.open("export")
    window.page.locator("input[value=list]").check()
    window.press("Enter")
    left = before["unlabeled"] + before["none"]
    window.page.locator("summary", has_text=f"{left} images left out").wait_for()
    window.press("z")
    window.wait_for_labels(**before)


def test_looks_closely_at_an_image_even_if_it_is_lost(window: Window) -> None:
    page = window.page
    page.route("**/image/*", lambda route: route.fulfill(status=404))
    page.route("**/thumb/*", lambda route: route.fulfill(status=404))
    window.open("images/all")
    page.locator(".inspector .lost", has_text="The file is gone").wait_for()
    page.locator(".tile.gone").first.wait_for()
    name = "getComputedStyle(document.querySelector('.tile.gone .lost'), '::before').content"
    assert ".png" in page.evaluate(name)
    window.press("v")
    page.locator("dialog.look .lost", has_text="The file is gone").wait_for()
    window.press("ArrowRight", "Escape")
    page.wait_for_selector("dialog", state="detached")
    window.press("v")
    page.wait_for_selector("dialog.look[open]")
    window.press("v")
    page.wait_for_selector("dialog", state="detached")


def test_help_lists_the_keys_and_turns_single_ones_off(window: Window) -> None:
    window.open("overview")
    window.press("?")
    dialog = window.page.locator("dialog[open]")
    assert "none of these" in dialog.inner_text()
    dialog.locator("input[type=checkbox]").uncheck()
    window.press("Escape")
    window.press("g", "m")
    assert window.page.evaluate("location.hash") == "#/overview"
    window.press("?")
    dialog.locator("input[type=checkbox]").check()
    window.press("Escape", "g", "m")
    window.page.wait_for_selector("main[data-screen=map]:not([aria-busy])")


def test_another_window_shows_what_this_one_did(window: Window, served: tuple[Served, Any]) -> None:
    server, context = served
    window.open("images/unlabeled")
    other = Window(context.new_page(), server.address)
    other.open("images/unlabeled")
    window.press("1")
    window.says("Labeled 1 image as ash")
    other.says("Another window changed something")
    other.page.wait_for_selector(".tile .line.labeled")
    other.press("z")
    other.says("Undone: ")
    other.page.close()
    window.page.wait_for_selector(".tile .line.labeled", state="detached")


@pytest.mark.parametrize("size", [(375, 740), (360, 225)], ids=["phone", "zoom of 400 %"])
def test_every_screen_fits(served: tuple[Served, Any], browser: Any, size: tuple[int, int]) -> None:
    server, context = served
    page = context.new_page()
    page.set_viewport_size({"width": size[0], "height": size[1]})
    shown = Window(page, server.address)
    for route in SCREENS:
        shown.open(route)
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(wide) <= 0, route
        covered = "getComputedStyle(document.getElementById('bar')).position"
        assert size[1] > 300 or page.evaluate(covered) == "static"
    assert shown.errors == []
    page.close()


AUDIT = Path(__file__).with_name("accessibility_audit.js").read_text()


def test_every_screen_can_be_seen_and_heard(window: Window) -> None:
    for route in SCREENS:
        window.open(route)
        window.page.wait_for_function("() => !document.querySelector('.tile[aria-busy]')")
        for scheme in ("light", "dark"):
            window.page.emulate_media(color_scheme=scheme)
            assert window.page.evaluate(AUDIT) == [], (route, scheme)
    window.open("images/unlabeled")
    window.press("1")
    window.says("Labeled 1 image as ash")
    assert window.page.evaluate(AUDIT) == []
    window.press("z")
    window.says("Undone: ")


@pytest.mark.slow
def test_a_refit_is_compared_and_kept_or_undone(window: Window) -> None:
    window.open("images/decision:accept")
    before = window.labels()
    window.press("Space", "ArrowRight", "Space", "Enter")
    window.says("Labeled 2 images as")
    window.press("g", "r")
    window.page.locator("button", has_text="Refit now").click()
    keep = window.page.locator("button", has_text="Keep the new model")
    keep.wait_for(timeout=240_000)
    assert "right on held-out labels" in window.page.locator("table").inner_text()
    window.press("Enter")
    window.says("The new model is kept")
    assert window.get("/api/overview")["version"] == 1
    window.press("z")
    window.says("Undone: ")
    assert window.get("/api/overview")["version"] == 0
    window.press("z", "z")
    window.wait_for_labels(**before)


def test_no_other_window_is_blamed_for_a_slow_change_of_the_model(window: Window) -> None:
    window.open("overview")
    before = window.get("/api/overview")
    page, headers = window.page, {"Origin": window.address}
    waiting = {"running": False, "waiting": True, "result": None}
    page.route("**/api/refit", lambda route: route.fulfill(json={**before["refit"], **waiting}))

    def slowly(route: Any) -> None:
        """Change something, as a kept model does, and answer after the next look."""
        content = {"kind": "add_class", "content": {"name": "kept"}}
        done = page.request.post(f"{window.address}/api/actions", data=content, headers=headers)
        time.sleep(3.5)
        route.fulfill(json=done.json())

    page.route("**/api/refit/keep", slowly)
    window.open("refit")
    page.evaluate(
        """() => {
          window.said = [];
          const see = () => window.said.push(document.getElementById("toasts").textContent);
          new MutationObserver(see).observe(document.getElementById("toasts"), { childList: true });
        }"""
    )
    window.press("Enter", "Enter")
    window.says("The new model is kept")
    page.wait_for_timeout(3000)
    said = page.evaluate("window.said.join()")
    assert "Another window" not in said
    assert "called" not in said  # the second key asked for nothing
    window.press("z")
    window.says("Undone: ")


def _answer(body: str, route: Any) -> None:
    route.fulfill(body=body, content_type="application/json")


def test_words_above_bars_that_are_cut_do_not_cover_each_other(window: Window) -> None:
    window.open("overview")
    overview = window.get("/api/overview")
    bins = 20
    edges, known = [bin / bins for bin in range(bins + 1)], [1 / bins] * bins
    for first, second in ((0, 1), (0, 2), (0, 9), (1, 3), (9, 11), (8, 19), (17, 19), (18, 19)):
        pool = [0.02] * bins
        pool[first], pool[second] = 0.4, 0.24
        drawn = {"edges": edges, "known": known, "pool": pool, "threshold": 0.5}
        answer = json.dumps({**overview, "histogram": drawn})
        window.page.route("**/api/overview", partial(_answer, answer))
        window.open("overview")
        window.page.reload()
        window.page.wait_for_selector("figure.scores")
        texts = window.page.locator("figure.scores svg text").evaluate_all(
            "all => all.map(one => one.getBoundingClientRect().toJSON())"
        )
        (frame,) = window.page.locator("figure.scores svg").evaluate_all(
            "all => all.map(one => one.getBoundingClientRect().toJSON())"
        )
        for number, one in enumerate(texts):
            assert frame["left"] <= one["left"] < one["right"] <= frame["right"], (first, second)
            for other in texts[:number]:
                apart = one["left"] >= other["right"] or other["left"] >= one["right"]
                level = one["top"] >= other["bottom"] or other["top"] >= one["bottom"]
                assert apart or level, (first, second, one, other)
        window.page.unroute("**/api/overview")
