"""The opening of a log, whatever is in its directory.

    loader     which files are trusted, and up to where; the order of all steps
    scan       reads a segment again, batch by batch, up to the first invalid byte
    tail       checks that the end and the index of a trusted segment fit together
    overflow   splits a segment whose offsets do not fit its base
    aside      keeps a copy of trusted bytes before they are cut
    report     what was found, and what was repaired

`docs/storage.md` has a table of all findings, and what is done about each.
"""
