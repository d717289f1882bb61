"""ImageNet-100 from a user's ImageNet folder, by the class list that ORCA uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from protofission.core.errors import InputError, require
from protofission.core.progress import Progress
from protofission.data.image_sets import ImageSet, ImageSets
from protofission.data.label_names import check_distinct
from protofission.data.readers.decode import Decoding, height_and_width
from protofission.data.readers.file_listing import content_of, list_files
from protofission.data.readers.image_cache import Entry
from protofission.data.readers.image_folders import cache_for, decode_and_report
from protofission.data.readers.image_problems import Report
from protofission.system.plain_files import read_plain

LONGEST_LIST = 2**20
"""The size limit of a list of classes, in bytes."""

ORCA_CLASSES: dict[str, str] = {
    "n01558993": "robin",
    "n01601694": "water ouzel",
    "n01669191": "box turtle",
    "n01751748": "sea snake",
    "n01755581": "diamondback",
    "n01756291": "sidewinder",
    "n01770393": "scorpion",
    "n01855672": "goose",
    "n01871265": "tusker",
    "n02018207": "American coot",
    "n02037110": "oystercatcher",
    "n02058221": "albatross",
    "n02087046": "toy terrier",
    "n02088632": "bluetick",
    "n02093256": "Staffordshire bullterrier",
    "n02093754": "Border terrier",
    "n02094114": "Norfolk terrier",
    "n02096177": "cairn",
    "n02097130": "giant schnauzer",
    "n02097298": "Scotch terrier",
    "n02099267": "flat-coated retriever",
    "n02100877": "Irish setter",
    "n02104365": "schipperke",
    "n02105855": "Shetland sheepdog",
    "n02106030": "collie",
    "n02106166": "Border collie",
    "n02107142": "Doberman",
    "n02110341": "dalmatian",
    "n02114855": "coyote",
    "n02120079": "Arctic fox",
    "n02120505": "grey fox",
    "n02125311": "cougar",
    "n02128385": "leopard",
    "n02133161": "American black bear",
    "n02277742": "ringlet",
    "n02325366": "wood rabbit",
    "n02364673": "guinea pig",
    "n02484975": "guenon",
    "n02489166": "proboscis monkey",
    "n02708093": "analog clock",
    "n02747177": "ashcan",
    "n02835271": "bicycle-built-for-two",
    "n02906734": "broom",
    "n02909870": "bucket",
    "n03085013": "computer keyboard",
    "n03124170": "cowboy hat",
    "n03127747": "crash helmet",
    "n03160309": "dam",
    "n03255030": "dumbbell",
    "n03272010": "electric guitar",
    "n03291819": "envelope",
    "n03337140": "file",
    "n03450230": "gown",
    "n03483316": "hand blower",
    "n03498962": "hatchet",
    "n03530642": "honeycomb",
    "n03623198": "knee pad",
    "n03649909": "lawn mower",
    "n03710721": "maillot",
    "n03717622": "manhole cover",
    "n03733281": "maze",
    "n03759954": "microphone",
    "n03775071": "mitten",
    "n03814639": "neck brace",
    "n03837869": "obelisk",
    "n03838899": "oboe",
    "n03854065": "organ",
    "n03929855": "pickelhaube",
    "n03930313": "picket fence",
    "n03954731": "plane",
    "n03956157": "planetarium",
    "n03983396": "pop bottle",
    "n04004767": "printer",
    "n04026417": "purse",
    "n04065272": "recreational vehicle",
    "n04200800": "shoe shop",
    "n04209239": "shower curtain",
    "n04235860": "sleeping bag",
    "n04311004": "steel arch bridge",
    "n04325704": "stole",
    "n04336792": "stretcher",
    "n04346328": "stupa",
    "n04380533": "table lamp",
    "n04428191": "thresher",
    "n04443257": "tobacco shop",
    "n04458633": "totem pole",
    "n04483307": "trimaran",
    "n04509417": "unicycle",
    "n04515003": "upright",
    "n04525305": "vending machine",
    "n04554684": "washer",
    "n04591157": "Windsor tie",
    "n04592741": "wing",
    "n04606251": "wreck",
    "n07583066": "guacamole",
    "n07613480": "trifle",
    "n07693725": "bagel",
    "n07711569": "mashed potato",
    "n07753592": "banana",
    "n11879895": "rapeseed",
}
"""WordNet ids with their first names, in ORCA's order (snap-stanford/orca at 5f33afd,
data/gen_imagenet_list.py), which is that of the ids; ORCA's seen classes are the first 50."""


def load_imagenet100(
    folder: Path | str,
    size: int | tuple[int, int] = 224,
    cache: Path | str | None = None,
    *,
    classes: Mapping[str, str] = ORCA_CLASSES,
    workers: int | None = None,
    progress: Progress | None = None,
) -> tuple[ImageSets, tuple[Report, ...]]:
    """Read the images of 100 classes of ImageNet, and report on each part.

    Images are in the order of their classes in the list, then of their names' bytes. ORCA's own
    order is that of its authors' file system, so its draw of labeled images cannot be repeated.

    Args:
        folder: with `train/<id>/` and, for the test images, `val/<id>/`; or the train folder.
        cache: the folder of decoded images; by default the usual cache folder.
        classes: class names by folder name, in order; see `read_classes`.
    """
    home = Path(folder).expanduser().absolute()
    require(home.is_dir(), f"{home} is not a folder: name the one of ImageNet.")
    train = home / "train" if (home / "train").is_dir() else home
    missing = [wnid for wnid in classes if not (train / wnid).is_dir()]
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise InputError(
            f"{train} lacks the class folders {', '.join(missing[:5])}{more}: "
            "name an ImageNet folder that has them, as train/<id>/ or <id>/."
        )
    height, width = height_and_width(size)
    decoding, store = Decoding(height, width), cache_for(home, cache)
    parts = [train]
    if train != home and all((home / "val" / wnid).is_dir() for wnid in classes):
        parts.append(home / "val")
    read = [_part(part, classes, decoding, store, workers, progress) for part in parts]
    return ImageSets(*(images for images, _ in read)), tuple(report for _, report in read)


def read_classes(path: Path | str) -> dict[str, str]:
    """Read a list of classes: in each line a folder's name and, optionally, the class's name."""
    try:
        lines = read_plain(Path(path).expanduser(), LONGEST_LIST).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error}): name a list of classes.") from None
    pairs = [line.split(maxsplit=1) for line in lines if line.strip()]
    require(len(pairs) > 0, f"{path} names no class: write a line for each.")
    check_distinct([pair[0] for pair in pairs])
    return {pair[0]: pair[-1].strip() for pair in pairs}


def _part(
    folder: Path,
    classes: Mapping[str, str],
    decoding: Decoding,
    cache: Path,
    workers: int | None,
    progress: Progress | None,
) -> tuple[ImageSet, Report]:
    entries: list[Entry] = []
    labels: list[int] = []
    left_out: dict[str, str] = {}
    hidden = 0
    for place, wnid in enumerate(classes):
        listing = list_files(folder / wnid)
        hidden += listing.hidden
        left_out |= {f"{wnid}/{path}": reason for path, reason in listing.left_out.items()}
        entries += [replace(entry, path=f"{wnid}/{entry.path}") for entry in listing.files]
        labels += [place] * len(listing.files)
    return decode_and_report(
        str(folder),
        entries,
        np.array(labels, np.int64),
        tuple(classes.values()),
        lambda place: content_of(folder / entries[place].path, decoding.byte_limit),
        decoding,
        cache,
        left_out=left_out,
        hidden=hidden,
        workers=workers,
        progress=progress,
    )
