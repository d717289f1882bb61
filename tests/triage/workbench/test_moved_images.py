"""Images that a refit decides otherwise, and pixels that are decoded when they are shown."""

import io

import numpy as np
from PIL import Image

from protofission.core.errors import InputError
from protofission.triage.workbench.moved_images import Decided, moved_images
from protofission.triage.workbench.user_pixels import UserPixels, cross


def test_changes_are_counted_by_class_and_listed_by_row():
    rows = np.array([3, 5, 7, 9, 11, 13])
    before = Decided(np.array([0, 0, 1, 1, 1, 0], bool), np.array([0, 1, 0, 1, 2, 2]))
    after = Decided(np.array([1, 1, 0, 1, 1, 0], bool), np.array([4, 1, 4, 1, 4, 4]))
    found = moved_images(rows, before, after)
    assert found.accepted.tolist() == [3, 5]
    assert found.rejected.tolist() == [7]
    assert found.renamed.tolist() == [11]
    names = {0: "ash", 1: "birch", 4: "oak\n"}
    assert found.sentences(names) == [
        "2 of 6 images without a label are accepted that were not before: oak\\n 1, birch 1.",
        "1 of 6 images without a label is rejected that was accepted before: ash 1.",
        "1 of 6 images without a label is accepted into another class than before: oak\\n 1.",
    ]
    assert found.facts()["renamed"] == {"count": 1, "rows": [11]}
    same = moved_images(rows, before, before)
    assert same.sentences(names) == ["None of the 6 images without a label is decided otherwise."]
    none = np.zeros(0, int)
    nothing = moved_images(none, Decided(none > 0, none), Decided(none > 0, none))
    assert nothing.sentences(names) == ["No image is without a label."]


def test_pixels_are_decoded_by_row_and_what_is_gone_has_a_cross():
    def read_file(row):
        if row == 7:
            raise InputError("It is gone.")
        content = io.BytesIO()
        Image.new("RGB", (9, 9), (row, 0, 255)).save(content, "PNG")
        return content.getvalue() if row != 8 else b"no image"

    pixels = UserPixels(read_file, np.array([5, 7, 8, 6]), 4)
    assert pixels.shape == (4, 3, 4, 4)
    assert len(pixels) == 4
    found = pixels[np.array([3, 1, 2])]
    assert found[0, :, 0, 0].tolist() == [6, 0, 255]
    assert np.array_equal(found[1], cross(4))
    assert np.array_equal(found[2], cross(4))
    assert pixels[0:1].shape == (1, 3, 4, 4)
    assert pixels[np.zeros(0, int)].shape == (0, 3, 4, 4)
    assert len(set(cross(4)[0, 0].tolist())) == 2
