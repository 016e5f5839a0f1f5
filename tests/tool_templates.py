"""Chat templates that know tools, each in the manner of a family of models."""

from __future__ import annotations

# Qwen's and Hermes': a tag around an object; several calls one after the other.
HERMES = """\
{%- if tools %}{{ "<|im_start|>system\\nYou may call:" }}
{%- for tool in tools %}{{ "\\n" + tool | tojson }}{% endfor %}{{ "<|im_end|>\\n" }}{% endif %}
{%- for message in messages %}
{%- if message.role == "assistant" and message.tool_calls %}{{ "<|im_start|>assistant" }}
{%- if message.content %}{{ "\\n" + message.content }}{% endif %}
{%- for call in message.tool_calls %}
{{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson }}{{ '}\\n</tool_call>' }}
{%- endfor %}{{ "<|im_end|>\\n" }}
{%- elif message.role == "tool" %}
{{- "<|im_start|>user\\n<tool_response>\\n" + message.name + ": " + message.content }}
{{- "\\n</tool_response><|im_end|>\\n" }}
{%- else %}{{ "<|im_start|>" + message.role + "\\n" + message.content + "<|im_end|>\\n" }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ "<|im_start|>assistant\\n" }}{% endif %}"""

# Qwen 3's, which thinks first; with `thinks` the prompt has begun the thought already.
THINKING = HERMES.replace(
    '{{ "<|im_start|>assistant\\n" }}{% endif %}',
    '{{ "<|im_start|>assistant\\n" }}'
    '{% if thinks is defined and thinks %}{{ "<think>\\n" }}'
    "{% elif enable_thinking is defined and not enable_thinking %}"
    '{{ "<think>\\n\\n</think>\\n\\n" }}{% endif %}{% endif %}',
)

# Llama 3's: a reply that is a call is nothing else, and there is one.
LLAMA = """\
{%- for message in messages %}<|im_start|>{{ message.role }}

{% if message.tool_calls %}
{%- if message.tool_calls | length != 1 %}{{ raise_exception("One call at once!") }}{% endif %}
{%- set call = message.tool_calls[0].function %}
{"name": "{{ call.name }}", "parameters": {{ call.arguments | tojson }}}
{%- else %}
{%- if loop.first and tools %}Functions: {{ tools | tojson }} {% endif %}{{ message.content }}
{%- endif %}<|im_end|>
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant

{% endif %}"""

# Mistral's: a control token, then a list, with ids of nine characters.
MISTRAL = """\
{%- for message in messages %}
{%- if message.role == "user" %}
{%- if tools and loop.last %}[AVAILABLE_TOOLS] {{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}
{{- "[INST] " + message.content + "[/INST]" }}
{%- elif message.tool_calls %}[TOOL_CALLS] [
{%- for call in message.tool_calls %}
{%- if call.id | length != 9 %}{{ raise_exception("Ids have 9 characters!") }}{% endif %}
{{- (call.function | tojson)[:-1] }}, "id": "{{ call.id }}"}
{%- if not loop.last %}, {% endif %}
{%- endfor %}]<|im_end|>
{%- elif message.role == "tool" %}[TOOL_RESULTS]{{ message.content }}[/TOOL_RESULTS]
{%- else %} {{ message.content }}<|im_end|>
{%- endif %}
{%- endfor %}"""

# The newer Mistral's: names and arguments between control tokens.
TEKKEN = """\
{%- for message in messages %}
{%- if message.role == "user" %}
{%- if tools and loop.last %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}
{{- "[INST]" + message.content + "[/INST]" }}
{%- elif message.tool_calls %}
{%- for call in message.tool_calls %}[TOOL_CALLS]{{ call.function.name }}[ARGS]
{{- call.function.arguments | tojson }}{% endfor %}<|im_end|>
{%- elif message.role == "tool" %}[TOOL_RESULTS]{{ message.content }}[/TOOL_RESULTS]
{%- else %}{{ message.content }}<|im_end|>
{%- endif %}
{%- endfor %}"""

# Qwen Coder's: no JSON.
MARKUP = HERMES.replace(
    """{{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson }}{{ '}\\n</tool_call>' }}""",
    """{{- "\\n<tool_call>\\n<function=" + call.function.name + ">" }}
{%- for key, value in call.function.arguments.items() %}
{{- "<parameter=" + key + ">" + value + "</parameter>" }}
{%- endfor %}{{ "</function>\\n</tool_call>" }}""",
)

# GPT-OSS's: replies go through channels.
CHANNELS = """\
{%- if tools %}<|start|>system {{ tools | tojson }}<|im_end|>{% endif %}
{%- for message in messages %}<|start|>{{ message.role }}
{%- if message.tool_calls %} to={{ message.tool_calls[0].function.name }}<|message|>
{{- message.tool_calls[0].function.arguments | tojson }}
{%- else %}<|channel|>final<|message|>{{ message.content }}{% endif %}<|im_end|>
{%- endfor %}
{%- if add_generation_prompt %}<|start|>assistant{% endif %}"""
