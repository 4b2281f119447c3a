"""Stories as text: a script of commands, and the answers that it must give.

script      a story's file: commands, a line of four dashes, the recorded answers
stage       what commands act on: a world, a cluster, its clients
commands/   what each command does
runner      runs a story from its seed
report/     a run as a page to look at
"""
