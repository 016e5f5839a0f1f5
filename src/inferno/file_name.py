"""Names of files that come from outside: does one mean a file, in the folder it is looked in?"""

from __future__ import annotations

import re
import sys

# What Windows takes for a device in any folder, whatever its ending; for a drive, a stream of
# another file or a pattern; and what it cuts off at the end.
_DEVICE = re.compile(
    r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9¹²³]) *(?:[.:].*)?", re.I | re.DOTALL
)
_OTHERS = re.compile(r'[<>:"|?*\x00-\x1f]|[. ]\Z')


def is_file_name(name: str) -> bool:
    """Tell whether `name` can be that of a file on this system, without a folder in it."""
    if name in ("", ".", "..") or not {"/", "\\", "\0"}.isdisjoint(name):
        return False
    return sys.platform != "win32" or not (_DEVICE.fullmatch(name) or _OTHERS.search(name))
