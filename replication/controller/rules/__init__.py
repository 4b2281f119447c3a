"""What the controller decides, as functions from an image and a request to records.

election         who can be elected
isr_changes      which ISR a leader may ask for (KIP-497)
brokers, sessions   registration, fencing, shutdown
topics, partitions, reassignments, configs, acls, scram, directories   the administration
decisions        what a decision is: an answer, and the records that make it true
"""
