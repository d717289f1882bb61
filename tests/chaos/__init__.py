"""A fault campaign against the real command line: kills, full disks, damage, garbage, at random.

    make chaos MINUTES=60 SEED=7

Each trial draws a fault and a command from the seed and its number, does the one to the other, and
holds what comes out against what is promised (docs/reliability.md).

    lives.py       runs a command, watches it, ends it, and finds what it leaves behind
    stage.py       the folder that all lives run in, and what is found in it afterwards
    materials.py   what commands read: images, lists, stores, models, runs, some of them unfinished
    subjects.py    the commands, and the bytes of an undisturbed run of each
    damage.py      what is done to a file
    garbage.py     hostile content for files that we or users write
    words.py       hostile command lines
    disks.py       small disks, where privileges allow them
    verdicts.py    what counts as kept promises, and what as broken ones
    trial.py       one trial: a subject, the moments at which it is struck, what it must come to
    faults.py      the kinds of faults
    table.py       the table at the end
    planted.py     the campaign against a command that misbehaves on purpose
"""
