"""`understudy follow` and `understudy promote`: a copy of a foreign cluster, and its promotion.

command    the options of `follow`            running   a mirror, until a signal
view       the table of progress              promote   a copy that becomes a cluster
served     a copy under `understudy up`
"""
