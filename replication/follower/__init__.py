"""A broker's following half: fetch from each partition's leader, append, and truncate.

fetcher_manager   groups partitions by leader and fetcher id, one task per group
fetcher           that task: do_work, process_fetch_request
partitions        the states of its partitions, those that have failed, and its metrics
log_truncation    carries out what rules/truncation decides
leader_endpoint   the requests to one leader
rules/            fetch_state, truncation, fetch_session_handler: values and functions
"""
