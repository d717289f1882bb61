"""Actions are read strictly, and what cannot be right is refused before it reaches a state."""

import dataclasses
import json

import numpy as np
import pytest

from protofission.core.errors import InputError
from protofission.triage.workbench.action_words import ACTION_WORDS, describe
from protofission.triage.workbench.actions import (
    ACTIONS,
    AddClass,
    Label,
    LabelEach,
    MergeClasses,
    PromoteClusters,
    SplitCluster,
    action_text,
    parse_action,
    read_action,
)
from workbench_stubs import StubMaterial, random_log


def test_every_action_comes_back_from_its_text():
    kinds = set()
    for seed in range(12):
        for _, action in random_log(seed, 60):
            kind, content = action_text(action)
            kinds.add(kind)
            assert parse_action(kind, content) == action
            assert read_action(kind, json.loads(content)) == action
    assert kinds == set(ACTIONS)


def test_a_field_with_a_default_may_be_missing_in_a_request():
    wanted = PromoteClusters((2,), "fir")
    assert read_action("promote_clusters", {"clusters": [2], "name": "fir"}) == wanted
    with pytest.raises(InputError, match="not as it was written"):
        parse_action("promote_clusters", '{"clusters":[2],"name":"fir"}')


LABEL = {"images": [1], "class_id": 0, "source": "grid"}
EACH = {"images": [1, 2], "classes": [0, 1], "source": "next"}


@pytest.mark.parametrize(
    ("kind", "content", "sentence"),
    [
        ("labels", LABEL, r"Unknown action 'labels'. Did you mean 'label'\?"),
        ("label", [], "it must be an object"),
        ("label", {**LABEL, "more": 1}, "more is not known"),
        ("label", {"images": [1], "class_id": 0}, "source is missing"),
        ("label", {**LABEL, "source": "folder"}, "source must be one of next, random, grid"),
        ("label", {**LABEL, "images": [1.0]}, r"images\[0\] must be a whole number"),
        ("label", {**LABEL, "images": [True]}, r"images\[0\] must be a whole number"),
        ("label", {**LABEL, "images": ["1"]}, r"images\[0\] must be a whole number"),
        ("label", {**LABEL, "images": 1}, "images must be a list"),
        ("label", {**LABEL, "images": []}, "names no images: select at least one"),
        ("label", {**LABEL, "images": [1, 1]}, "names an image twice"),
        ("label_each", {**EACH, "classes": [0]}, "names 1 for 2 images: give one for each"),
        ("label_each", {**EACH, "classes": [0, None]}, r"classes\[1\] must be a whole number"),
        ("label_each", {**EACH, "classes": [0, -2]}, "names -2, which is no class"),
        ("label", {**LABEL, "images": [-1]}, "There is no image -1"),
        ("label", {**LABEL, "images": [3, 2**31]}, "There is no image 2147483648"),
        ("label", {**LABEL, "images": [2**80]}, "There is no image 1208925819614629174706176"),
        ("label", {**LABEL, "class_id": -2}, "class_id = -2 is no class"),
        ("label", {**LABEL, "class_id": True}, "class_id must be a whole number"),
        ("label", {**LABEL, "class_id": 2**70}, "is no class"),
        ("add_class", {"name": ""}, "The name '' is empty"),
        ("add_class", {"name": "   "}, "The name '   ' is empty: give it a letter or more"),
        ("add_class", {"name": "x" * 101}, r"The name 'x{60}\.\.\.' has 101 characters"),
        ("add_class", {"name": "a\nb"}, r"The name 'a\\nb' begins .* has a control character"),
        ("add_class", {"name": "a\x00"}, "has a control character"),
        ("add_class", {"name": "\u202eabc"}, "has a control character"),
        ("add_class", {"name": "\ud800"}, "has a control character"),
        ("add_class", {"name": " a"}, "begins or ends with a space"),
        ("add_class", {"name": 5}, "name must be a text"),
        ("merge_classes", {"classes": [], "into": 1}, "classes names 0"),
        ("merge_classes", {"classes": [1, 1], "into": 2}, "names one twice"),
        ("merge_classes", {"classes": [1, 2], "into": 2}, "names 2, into which they are merged"),
        ("split_cluster", {"cluster": 0, "parts": [[1, 2]]}, "split into 1 part: give between 2"),
        ("split_cluster", {"cluster": 0, "parts": [[1], []]}, "A part of the split holds no"),
        ("split_cluster", {"cluster": 0, "parts": [[1], [2, 1]]}, "names an image twice"),
        ("promote_clusters", {"clusters": [0], "name": "a", "images": []}, "names no images"),
        (
            "keep_refit",
            {"version": 0, "classes": [0], "subclass_names": [[]], "cluster_names": []},
            "version = 0 must be at least 1",
        ),
        (
            "keep_refit",
            {"version": 1, "classes": [0, 1], "subclass_names": [[]], "cluster_names": []},
            "2 classes and 1 lists",
        ),
    ],
)
def test_a_wrong_request_is_one_sentence(kind, content, sentence):
    with pytest.raises(InputError, match=sentence) as caught:
        read_action(kind, content)
    assert "\n" not in str(caught.value)


def test_names_of_any_script_are_taken():
    for name in (
        "名前",
        "Käfer",
        "می‌خواهم",
        "x" * 100,
        "<script>alert(1)</script>",
        "a  b",
        "ア　イ",
    ):
        assert read_action("add_class", {"name": name}) == AddClass(name)


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("label", '{"images":[1],"images":[2],"class_id":0,"source":"grid"}'),
        ("label", '{"images":[1],"class_id":0,"source":"grid"} '),
        ("label", '{"class_id":0,"images":[1],"source":"grid"}'),
        ("label", "[" * 100_000),
        ("label", "NaN"),
        ("undo", '{"action":NaN}'),
        ("undo", '{"action":1.0}'),
    ],
)
def test_a_text_in_the_log_is_exactly_as_it_was_written(kind, content):
    with pytest.raises(InputError):
        parse_action(kind, content)


def test_as_many_images_as_a_pool_has_are_read_at_once():
    rows = np.arange(1_000_000)
    content = action_text(Label(tuple(rows.tolist()), 0, "grid"))
    assert len(parse_action(*content).images) == 1_000_000
    with pytest.raises(InputError, match="1,000,001 images: give at most 1,000,000"):
        Label(tuple(range(1_000_001)), 0, "grid")


def test_actions_are_values_that_do_not_change():
    action = MergeClasses((1, 2), 0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        action.into = 5
    assert hash(SplitCluster(0, ((1,), (2,)))) == hash(SplitCluster(0, ((1,), (2,))))


def test_every_action_has_words_with_the_names_of_now():
    assert set(ACTION_WORDS) == set(ACTIONS.values())
    state = StubMaterial().start_state()
    state.apply(1, Label((1, 2), 1, "grid"))
    assert describe(state, Label((1, 2), 1, "grid")) == "label 2 images “birch”"
    assert describe(state, LabelEach((1, 2), (0, 1), "next")) == "label 2 images in 2 classes"
    assert describe(state, Label((1,), None, "grid")) == "take back the label of 1 image"
    assert describe(state, Label((1,), 9, "grid")) == "label 1 image class 9"
    assert describe(state, MergeClasses((1, 2), 0)) == "merge “birch”, “cedar” into “ash”"
    for seed in range(12):
        for _, action in random_log(seed, 60):
            assert describe(state, action)
