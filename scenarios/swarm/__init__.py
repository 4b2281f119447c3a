"""Random runs of the real cluster under random faults, one for each seed.

runner      one run: draw it, play it, check it
faults      the table of all that may happen, in the words of stories
generator   the lines of one run, drawn from that table, some within a loss budget
situation   what a fault finds in the cluster when it is drawn
settings    the cluster of a run, and our own clients in it
guide       the seeds of a swarm that is to reach every marker
markers     situations with names, counted in every run
shrinking   the shortest story that still fails in the same way
"""
