"""A broker's following half: fetch from each partition's leader, append, and truncate.

fetcher_manager   groups partitions by leader and fetcher id, one task per group
fetcher           that task: do_work, process_fetch_request
leader_endpoint   the leader, as the fetcher asks it
truncator         carries out what rules/truncation decides
rules/            fetch_state, truncation, fetch_session_handler: values and functions
"""
