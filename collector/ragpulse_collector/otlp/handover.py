"""Handing a body to whoever stores it, and turning every way this can fail into the refusal the sender should see."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future

from ragpulse_collector.otlp.intake import Limits, Refusal
from ragpulse_collector.otlp.parse import check_metrics
from ragpulse_collector.records import DecodeError, RawBody, Receipt

_log = logging.getLogger(__name__)

Submit = Callable[[RawBody], Future[Receipt]]


async def hand_over(submit: Submit, body: RawBody, limits: Limits) -> Receipt:
    """Return the receipt once the body's content is on disk; metrics are only checked, in a thread.

    Raises Refusal: 400 for what cannot be decoded; 503 for everything that is not the sender's fault, whether the store
    says when to come again (`retry_after_s` on its exception) or failed in a way nobody foresaw.

    The store's exceptions lose their traceback here: futures refer to them in cycles, and the traceback to the body.
    """
    try:
        if body.signal == "metrics":
            await asyncio.to_thread(check_metrics, body)
            return Receipt()
        # Shielded: a sender that leaves must not cancel what is being written.
        return await asyncio.shield(asyncio.wrap_future(submit(body)))
    except DecodeError as error:
        raise Refusal(400, str(error)) from error.with_traceback(None)
    except Exception as error:  # noqa: BLE001 - at this boundary whatever failed is ours to mend, so the sender keeps its batch
        retry_after_s = getattr(error, "retry_after_s", None)
        if retry_after_s is not None:
            raise Refusal(503, str(error), retry_after_s=retry_after_s) from error.with_traceback(None)
        _log.exception("a %s body could not be stored", body.signal)
        refusal = Refusal(503, "could not be stored, come again", retry_after_s=limits.retry_after_s)
        raise refusal from error.with_traceback(None)
