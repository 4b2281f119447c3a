"""Random runs of the real cluster under random faults, one for each seed.

runner      one run: draw it, run it, check it
faults      what happens to the cluster, drawn line by line in the words of stories
settings, workload, our_clients, admin_operations   who takes part, and what they do
sequences and what builds on it   faults that only together reach a rare situation
markers     situations with names, counted in every run
shrinking   the shortest story that still fails in the same way
"""
