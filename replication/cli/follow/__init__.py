"""`understudy follow` and `understudy promote`: a copy of a foreign cluster, and its end as one.

command    what may be said, and running a mirror       view    what is shown meanwhile
"""
