"""The report of a story or a run of the swarm, as one page: `--report FILE.html`.

recording = Recording()
run = run_story(script, seed=7, recording=recording)
scene = scene_of(recording, title=..., passages=...)
page(scene)            a self-contained page: no server, no network
to_shiviz(scene)       the same messages for ShiViz

simulated network ──tap──> messages ─┐
cluster ──watcher──> standings ──────┼─> scene (plain data) ─> page, ShiViz
trace ──> events, causes ────────────┘    it opens at the turning point (`turning_point.py`)
"""

from scenarios.story.report.page import page, to_shiviz
from scenarios.story.report.recording import Recording
from scenarios.story.report.scene import Scene, scene_of

__all__ = ["Recording", "Scene", "page", "scene_of", "to_shiviz"]
