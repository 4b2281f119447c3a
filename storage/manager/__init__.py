"""All logs of a broker, in one or more log directories (LogManager).

log_manager       opens, creates, deletes, checkpoints and closes logs
log_directory     one directory: its lock, its metadata, its logs, its checkpoints
checkpoint_plan   a checkpoint that a worker thread prepares
cleaner_manager   which log is cleaned next, and up to where (LogCleanerManager)
pending_deletes   directories that are renamed first and removed later
"""
