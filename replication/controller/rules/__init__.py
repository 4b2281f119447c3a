"""The decisions of the controller, as functions from an image and a request to records.

decisions        a decision: an answer, and the records that it rests on
election         the leader election of one partition, and the ISR after it
isr_changes      AlterPartition: the ISR that a leader asks for (KIP-497)
brokers          registration, heartbeats, sessions, fencing, controlled shutdown
directories      log directories of brokers (KIP-858)
topics           CreateTopics, DeleteTopics, AllocateProducerIds; topic_names checks a name
partitions       CreatePartitions, ElectLeaders, the balance of leaders
reassignment     a partition moves to other brokers, step by step (KIP-455);
                 reassignment_requests answers AlterPartitionReassignments
configs, acls, scram    configuration, ACLs and SCRAM credentials
events           the events that follow from the records of a decision
"""
