"""Chooses a topic in kafka-viewer's page and prints the messages that it shows, as JSON.

Arguments: kafka-viewer's properties, and the topic.
"""

import json
import sys
from pathlib import Path

import kafka_viewer
from streamlit.testing.v1 import AppTest

properties, topic = sys.argv[1:]
sys.argv[1:] = ["--config", properties]
page = AppTest.from_file(str(Path(kafka_viewer.__file__).with_name("ui.py")), default_timeout=60)
page.run()
assert not page.exception, page.exception
page.selectbox[0].set_value(topic).run()
page.radio[0].set_value("From beginning").run()
page.number_input[0].set_value(2000).run()
page.text_input[0].set_value("walk").run()
next(each for each in page.button if each.label == "Load Messages").click().run()
errors = [each.value for each in page.error]
assert not errors, errors
print(json.dumps([each.value for each in page.code]))
