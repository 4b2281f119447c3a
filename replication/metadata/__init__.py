"""The cluster's metadata, as every node follows it.

rules/      the image, the records that change it, the snapshot's bytes
log         the metadata log on a node's disk; snapshots shortens it (KIP-630)
follower    the task that follows the controller's log; endpoint is its leader
cache       the image that this broker answers clients from
"""
