"""The Jinja environment in which transformers renders chat templates, with a fixed clock.

The environment is transformers' own: this compiles a template with it, then replaces the clock, so
that what is rendered can be stored and compared. Used by make_template_goldens.py and
template_differential.py.
"""

import datetime
import functools
import json
import warnings

import jinja2
from transformers.utils import chat_template_utils

warnings.filterwarnings("ignore", category=SyntaxWarning)  # of code that jinja2 generates

# Saturday; every field differs, so that a mixed-up one shows.
NOW = datetime.datetime(2026, 3, 7, 9, 5, 3, 123456)


@functools.lru_cache(maxsize=64)
def compile_template(source, block_options=True):
    """transformers' compiled template; block_options=False: trim_blocks and lstrip_blocks off."""
    template = chat_template_utils._compile_jinja_template(source)
    environment = template.environment
    environment.globals["strftime_now"] = lambda format: NOW.strftime(format)
    if not block_options:
        environment.trim_blocks = False
        environment.lstrip_blocks = False
    return environment.from_string(source)


def render(source, context, block_options=True):
    """("ok", text), ("raised", message of raise_exception) or ("error", message)."""
    try:
        template = compile_template(source, block_options)
        return "ok", template.render(**json.loads(json.dumps(context)))
    except jinja2.exceptions.TemplateError as error:
        kind = "raised" if type(error) is jinja2.exceptions.TemplateError else "error"
        return kind, str(error)
    except RecursionError:
        return "error", "RecursionError"
    except Exception as error:  # whatever Python raises in a template is an error of it
        return "error", f"{type(error).__name__}: {error}"
