"""The controller: it decides, writes each decision to its log, and brokers follow that log.

controller     the task that takes requests one after the other
rules/         the decisions, each a function of the metadata image and a request
log_service    the answers to brokers that fetch the metadata log
metrics        Kafka's metrics of the controller
"""
