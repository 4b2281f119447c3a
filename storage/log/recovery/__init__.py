"""Opening a log, whatever is in its directory.

    loader     which files to believe, and how far; the order of what is done
    scan       a segment read again, batch by batch, and why it stops making sense
    tail       a segment believed: do its ends and its index fit together
    overflow   a segment whose offsets do not fit its base, split
    aside      bytes that had been believed are kept before they are cut
    report     what was found, and what was done about it

`docs/storage.md` has the table: what is found, what is done, what is kept.
"""
