"""A partition's leading half: reads for followers and consumers, the ISR, the high watermark.

partition      one partition that this broker leads or follows
purgatory      produce and fetch requests that wait for replicas or for records
list_offsets   an offset by timestamp
rules/         isr, leadership, log_reader, fetch sessions: values and functions
"""
