"""Version 2 of the Agent Client Protocol to core and back, pure (schema v2; docs: protocol/v2).

Between the halves of the adapter everything is version 1's words: events and their `origin["agent_client"]`,
requests, questions, ThreadUpdates. What version 2 says beyond them stands beside them under ORIGIN_V2
("agent_client.v2"), so that version 2 in and out loses nothing and version 1's codec needs to know nearly nothing of
it (v2_for_v1.py).

The outbound half, with an agent of version 2:
    agents.hello(capabilities, info)            params of `initialize` that agents of both versions understand
    agents.agent_of(answer, source)             the Agent, of whichever version; agents.speaks_v2(agent) tells
    requests.to_v2(method, params, mode=)       a request of version 1 -> (method, params); requests.CHANGED lists which
    requests.result_to_v1(method, result)       its answer, by version 1's method
    session_memory.SessionMemory()              one for each session and connection: what was said before
    updates_in.V2UpdateDecoder(known)           one for each run: feed / more / begun / title / close as version 1's
    updates_in.stray(update, known)             an update between runs -> ThreadUpdates (a list, unlike version 1's)
    updates_in.aside(note)                      one that came while a run's prompt was on its way -> its event
    turn.state_of(update)                       the `state_update` it is, or None; to be looked at before `feed`
    turn.runs / waits / ends (state)            which it is; turn.ended(state) -> the events that end the run
    turn.failed(error)                          an error answer of `session/prompt`
    questions.permission(params, id, known)     a permission request -> Interrupt; questions.permission_result as v1's
    questions.elicitation ...                   forms are version 1's

The inbound half, with a client of version 2:
    agents.capabilities_v1(capabilities)        what it can do, as version 1's
    agents.initialize_result(agent, version=)   the answer
    requests.to_v1(method, params)              a request -> (method, params) of version 1; requests.set_mode for modes
    requests.result_to_v2(method, result, modes=)  its answer, by version 1's method
    updates_out.V2UpdateEncoder(agent, run=, replay=)  one for each run: as version 1's, with its interface
    updates_out.user(blocks, message_id)        the `user_message` of a prompt; says_user: the agent says it
    updates_out.text(said, message_id)          a text of the gateway's own
    updates_out.update, updates_out.envelope    as version 1's
    thread_updates.told(update, options=, modes=)  a ThreadUpdate as update, None if it is none
    turn.running() / requires_action() / idle() / over(run, end, agent=, usage=)  the states; the last ends a run
    questions.as_permission / permission_answer / as_elicitation / elicitation_answer / as_text / answer_from_text

Inside: wire.py (words), conversions.py (options, modes, commands, servers), calls.py and diffs.py (tool calls),
updates.py (version 1's updates in version 2's words), beyond_v1.py (what stands in `origin`), texts.py (messages),
output_text.py (agents of other protocols).
"""
