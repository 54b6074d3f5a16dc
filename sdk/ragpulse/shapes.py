"""How messages, their parts and replies look in any library's objects and JSON: one rule for SDK and collector.

Constants only, so that both can read them. The rule:

1. A part is text if it has no type or one of `TEXT_PARTS`, and is not marked as a thought. Everything else (thinking,
   signatures, encrypted parts, results of tools, files) is never text. A reply is its text parts joined, in order.
2. The answer in a list of messages is the last thing that the assistant said after the user's last message. A message
   with nothing but results of tools is none of the user's.
3. A part with a type of `CALL_PARTS`, or with a key of `CALL_KEYS`, is a tool call.
4. A reply without text has none: null with a reason, never its JSON. The empty text is kept where it was sent.

Types, roles and finish reasons are compared in lower case.
"""

from typing import Final

# --- parts -----------------------------------------------------------------------------------------------------------
PART_TYPE_KEYS: Final = ("type", "part_kind", "block_type", "content_type")
TEXT_PARTS: Final = frozenset(
    {
        "text", "output_text", "input_text", "text_delta", "refusal", "message", "message.output", "model_output",
        "output_audio",
    }
)  # fmt: skip
"""`message`: an item of a Responses API's output, which holds parts. Of audio the transcript is text."""
THOUGHT_KEY: Final = "thought"
"""True on a part of Google's that is a thought."""
REFUSAL_KEY: Final = "refusal"
PART_TEXT_KEYS: Final = ("text", "content", REFUSAL_KEY, "transcript", "citationsContent", "message_content")
CALL_PARTS: Final = frozenset(
    {
        "tool_use", "server_tool_use", "mcp_tool_use", "tool_call", "tool-call", "server_tool_call",
        "builtin-tool-call", "native-tool-call", "function_call", "function", "custom", "custom_tool_call", "mcp_call",
        "web_search_call", "file_search_call", "code_interpreter_call", "computer_call", "image_generation_call",
        "local_shell_call", "shell_call", "apply_patch_call", "tool_search_call", "invalid_tool_call",
    }
)  # fmt: skip
RESULT_PARTS: Final = frozenset(
    {
        "tool_result", "tool-result", "tool_return", "tool-return", "tool_response", "tool-response", "mcp_tool_result",
        "function_response", "function_result", "function_call_output", "retry-prompt",
    }
)  # fmt: skip
RESULT_KEYS: Final = ("functionResponse", "function_response", "toolResult", "tool_result", "tool_use_id")
"""As `RESULT_PARTS`, of parts without a type: the result of a tool."""
CALL_KEYS: Final = (
    "functionCall", "function_call", "toolUse", "tool_use", "tool_call", "toolRequest", "executableCode",
    "executable_code",
)  # fmt: skip
"""Where a part without a type holds a call: Google, Bedrock, Haystack."""
CALL_FORM_KEYS: Final = ("function", "custom", *CALL_KEYS)
"""Where a call holds its name and arguments, if not at the top."""
CALL_ID_KEYS: Final = ("call_id", "tool_call_id", "toolCallId", "toolUseId", "id")
CALL_NAME_KEYS: Final = ("name", "tool_name", "toolName", "function_name")
CALL_ARGUMENT_KEYS: Final = ("arguments", "args", "input", "tool_kwargs", "parameters", "action", "code", "queries")

# --- messages --------------------------------------------------------------------------------------------------------
PARTS_KEYS: Final = ("content", "contents", "parts", "blocks", "items", "_content")
"""Where a message has its text or its list of parts."""
WRAPPED_MESSAGE_KEYS: Final = ("message", "kwargs", "data", "chat_message")
"""Where a choice or a serialized constructor has the message itself."""
MESSAGE_KEYS: Final = (*PARTS_KEYS, "text", REFUSAL_KEY, "audio", *WRAPPED_MESSAGE_KEYS)
CALLS_KEY: Final = "tool_calls"
ROLE_KEYS: Final = ("role", "_role", "type", "kind", "speaker", "sender", "from", "author", "source")
NAME_KEYS: Final = frozenset({"speaker", "sender", "from", "author", "source"})
"""They name the speaker of a message in a list: a name that is in no other role is an agent's."""
ASSISTANT: Final = "assistant"
USER: Final = "user"
OTHER: Final = "other"
ROLES: Final = {
    **dict.fromkeys(
        ("assistant", "ai", "model", "bot", "chatbot", "agent", "aimessage", "aimessagechunk", "response", "gpt"),
        ASSISTANT,
    ),
    **dict.fromkeys(("user", "human", "humanmessage", "humanmessagechunk", "user_proxy", "customer", "request"), USER),
    **dict.fromkeys(
        (
            "system", "developer", "tool", "function", "tool-call", "tool-response", "toolmessage", "systemmessage",
            "functionmessage", "toolmessagechunk", "remove", "thoughtevent", "memoryqueryevent", "toolcallrequestevent",
            "toolcallexecutionevent", "userinputrequestedevent", "handoffmessage",
        ),
        OTHER,
    ),
}  # fmt: skip

# --- replies and results ---------------------------------------------------------------------------------------------
ANSWER_KEYS: Final = (
    "output_text", "answer", "response", "final_output", "chat_message", "generation", "delta", "content", REFUSAL_KEY,
    "message", "output", "outputs", "result", "final_result", "text", "completion", "generated_text", "outputText",
    "return_value", "choices", "candidates", "generations", "replies", "answers", "completions",
    "predictions", "messages", "conversations", "steps", "parts", "audio", "data", "kwargs", "update", "value", "raw",
)  # fmt: skip
"""Where a reply or an application's result has its answer; the first with a text counts. `answer` comes before
`message`, which is often the question or a status."""
QUESTION_KEYS: Final = (
    "query", "question", "query_str", "query_bundle", "input", "inputs", "user_input", "messages", "contents", "args",
    "kwargs", "prompt", "task", "text", "q", "content", "parts",
)  # fmt: skip
STATE_KEYS: Final = frozenset({"messages", "state", "ctx", "documents", "context", "contexts", "nodes", "chunks"})
"""A mapping with one of these and no question is the state of a program."""
WRAPPER_KEYS: Final = frozenset({"delta", "audio", "data", "kwargs", "update", "value"})
"""They hold a reply; a text of theirs is something else."""
CHOICE_KEYS: Final = frozenset(
    {"choices", "candidates", "generations", "replies", "answers", "completions", "predictions"}
)
"""Lists of alternatives: the first counts."""
DERIVED_KEY: Final = "generations"
"""LangChain derives their texts: "" stands for none there."""
PART_LISTS: Final = frozenset({*PARTS_KEYS, "output", "steps"})
CONVERSATION_KEYS: Final = frozenset({"messages", "conversations"})

# --- why there is no response ----------------------------------------------------------------------------------------
TOOL_CALLS: Final = "tool_calls"
FILTERED: Final = "filtered"
REFUSED: Final = "refused_by_provider"
WITHHELD: Final = "withheld"
NO_CHOICE: Final = "no_choice"
CUT: Final = "cut"
NOTHING: Final = "nothing"
"""The application returned nothing: null, an object without a value, the name of a value that JavaScript has not."""
UNREAD: Final = "unread"
FINISH_KEYS: Final = ("finish_reason", "finishReason", "stop_reason", "stopReason")
MISSING_REASONS: Final = {
    **dict.fromkeys(
        (
            "content_filter", "content_filtered", "content-filter", "safety", "blocklist", "prohibited_content", "spii",
            "recitation", "language", "image_safety", "image_prohibited_content", "guardrail_intervened", "error_toxic",
            "model_armor", "jailbreak",
        ),
        FILTERED,
    ),
    **dict.fromkeys(("refusal", "refused"), REFUSED),
    **dict.fromkeys(
        ("tool_calls", "tool_call", "tool_use", "tool-calls", "function_call", "function_calls"), TOOL_CALLS
    ),
    **dict.fromkeys(
        ("length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded"), CUT
    ),
}  # fmt: skip
"""A finish reason → why a reply without text has none."""
BLOCK_KEYS: Final = ("blockReason", "block_reason")
"""In Google's feedback about a prompt that was blocked."""
OBJECT_REPR: Final = r"<[\w.]+ (?:[^\n]* )?at 0x[0-9a-fA-F]+>|<(?:[a-z_]\w*\.)+[A-Za-z_]\w*>|<(?:nil|null)>"
"""An object that has no text: Python's `<generator object answer at 0x7f>`, `<builtins.generator>`, Go's `<nil>`."""
WITHHELD_TEXTS: Final = frozenset({"__REDACTED__", "redacted-by-litellm"})
"""What instrumentations write in place of a text that they withhold."""
NOTHING_TEXTS: Final = (
    r"null|NULL|nil|NaN|nan|undefined|\(null\)|\(\)|\[undefined\]|Optional\.empty|(?:\[object [A-Z]\w*\](?:, ?)?)+"
)
"""How senders spell a value that is none or has no text; a text that is only this is no answer and no question."""
