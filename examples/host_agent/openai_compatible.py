# SPDX-License-Identifier: Apache-2.0
"""A real model behind any endpoint that speaks OpenAI's chat completions; needs only urllib."""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

from .model import Message, ModelError, Reply, message_of

DEFAULT_MODEL = "gpt-4o-mini"


class OpenAICompatibleModel:
    """`Model` that POSTs to ``BASE_URL/chat/completions``.

    Args:
        base_url: up to and including the version, e.g. ``https://api.openai.com/v1``.
        name: the model to ask for.
        api_key: sent as a bearer token when it is not empty.
        timeout: seconds that the endpoint may stay silent.
    """

    def __init__(
        self, base_url: str, name: str = DEFAULT_MODEL, api_key: str = "", timeout: float = 60
    ) -> None:
        self.name = name
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._timeout = timeout

    @classmethod
    def from_environment(
        cls, environ: Mapping[str, str] = os.environ
    ) -> OpenAICompatibleModel | None:
        """The model that ``OPENAI_BASE_URL`` points at, None when that is not set.

        An ``OPENAI_API_KEY`` alone is not enough: it may be there for another program, and nobody
        should be charged for a demo by surprise.
        """
        base_url = environ.get("OPENAI_BASE_URL", "").strip()
        if not base_url:
            return None
        name = environ.get("OPENAI_MODEL", "").strip() or DEFAULT_MODEL
        return cls(base_url, name, environ.get("OPENAI_API_KEY", "").strip())

    def chat(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Reply:
        """Ask the endpoint; whatever goes wrong on the way is a `ModelError`."""
        if not self._url.startswith(("http://", "https://")):
            raise ModelError(f"{self._url} is no http address; set OPENAI_BASE_URL to one")
        body = json.dumps({"model": self.name, "messages": messages, "tools": tools}).encode()
        try:
            request = urllib.request.Request(self._url, body, self._headers)  # noqa: S310  (http)
            with urllib.request.urlopen(request, timeout=self._timeout) as response:  # noqa: S310
                text = response.read()
        except urllib.error.HTTPError as error:
            with error:
                detail = error.read(300).decode("utf-8", "replace").strip()
            raise ModelError(f"{self._url} answered {error.code}: {detail}") from error
        except TimeoutError as error:
            raise ModelError(f"{self._url} was silent for {self._timeout} s") from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise ModelError(f"{self._url} cannot be asked: {error}") from error
        try:
            reply = json.loads(text)
        except ValueError as error:
            raise ModelError(f"{self._url} sent no JSON: {text[:100]!r}") from error
        if not isinstance(reply, dict):
            raise ModelError(f"{self._url} sent {type(reply).__name__}, not a chat completion")
        message_of(reply)
        return reply
