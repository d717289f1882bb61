"""Begins exports to be killed; run as a script, with a folder for images.

Reads from each line of standard input, as JSON, the name of a format and a destination; answers
with the number of the process that exports there.
"""

import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from labeled_pictures import labeled_pictures
from protofission.triage.workbench.exports import EXPORTS, export_images

signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
few = labeled_pictures(Path(sys.argv[1]))
images = replace(
    few, images=tuple(i._replace(row=n * 1000 + i.row) for n in range(100) for i in few.images)
)
for line in sys.stdin:
    name, out = json.loads(line)
    child = os.fork()
    if not child:
        export = EXPORTS[name]

        def write(task, write=export.write):
            write(task)
            time.sleep(60)

        EXPORTS[name] = replace(export, write=write)
        export_images(images, out, name)
        os._exit(0)
    print(child, flush=True)
