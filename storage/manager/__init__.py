"""All logs of a broker, in one or more log directories (LogManager).

log_manager         opens, creates, deletes and closes logs
log_directory       one directory: its lock, its metadata, its checkpoints
checkpointed_logs   high watermarks, recovery points and log starts, written together
cleaner_manager     which log is cleaned next, and up to where (LogCleanerManager)
pending_deletes     directories that are renamed first and removed later
"""
