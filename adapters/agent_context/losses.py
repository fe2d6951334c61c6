"""The losses of this protocol, by the name under which they are counted."""

LOSSES = {
    "payload_as_text": "A payload that is no input of the agent and has no text in it is told to it as JSON text.",
    "payload_rest": "What a payload says beside its text and files is not told to an agent that takes text only.",
    "late_message": "What an agent says about a run that has ended is left out.",
    "config": "An agent of this protocol takes no configuration with a run.",
    "task_part": "Output of a task's agent that is neither its text nor a thought or file beside it is not passed on: "
    "the task's result has it.",
    "task_artifact": "A file of a task's agent that cannot be read any more is not passed on.",
}
