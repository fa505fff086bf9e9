#!/usr/bin/env python3
"""A client of conclave for schism, in nothing but Python's standard library.

It shows what a client in another language has to do: docs/client-protocol.md has the rules, and

    schism client-test python3 examples/conclave_client.py

checks them. Two things in it are easy to get wrong:

* An operation whose request may have been sent ends in Indefinite ("info"), whatever went wrong.
  Only what certainly did nothing ends in Definite ("fail").
* http.client sends a request once, on one connection, and follows no redirect. The convenient
  libraries retry and reconnect by themselves; then one operation can happen twice.
"""

import http.client
import json
import queue
import re
import sys
import threading
import time


class Definite(Exception):
    """The operation did not happen and never will."""


class Indefinite(Exception):
    """The operation may have happened, or may yet."""


class Server:
    """One connection to one server, opened when it is needed and dropped when it fails."""

    def __init__(self, addr):
        self.host, _, port = addr.rpartition(":")
        self.port = int(port)
        self.connection = None

    def post(self, path, body, timeout):
        """Returns status and answer. Raises Definite before the request is sent, Indefinite after."""
        if self.connection is None:
            fresh = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
            fresh.auto_open = 0  # it must never reconnect by itself
            try:
                fresh.connect()
            except OSError as error:
                raise Definite(f"unreachable: {error}") from error
            self.connection = fresh
        connection, self.connection = self.connection, None
        try:
            connection.sock.settimeout(timeout)
            connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            response = connection.getresponse()
            status, answer = response.status, json.loads(response.read() or b"{}")
        except TimeoutError as error:
            raise Indefinite("timeout") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Indefinite(f"connection-lost: {error!r}") from error
        if not response.will_close:
            self.connection = connection  # the next operation may use it again
        return status, answer


class Worker:
    """Does the operations of one thread, one after another, with connections of its own."""

    def __init__(self, hello, thread):
        self.nodes = {node["id"]: Server(node["addr"]) for node in hello["nodes"]}
        self.vault = Server(hello["vault"]["addr"]) if "vault" in hello else None
        self.params = hello.get("params", {})
        self.workload = hello["workload"]
        names = list(self.nodes)
        self.guess = names[thread % len(names)]  # the node that it takes for the leader
        self.held = {}  # token -> (lock, session, deadline)

    def invoke(self, op):
        """Returns the value of `ok`, or raises Definite or Indefinite."""
        function = FUNCTIONS.get(op["f"])
        if function is None:
            raise Definite(f"unknown-function: {op['f']}")
        self.process = op["process"]
        # A connection that was kept is closed by now if the server restarted, and nothing tells.
        # That ends in Indefinite, which is right: the request was sent.
        return function(self, op, op.get("key"), op.get("value"))

    def ask(self, op, path, body):
        """Asks conclave. A node that does not lead says who does: that is for the next operation."""
        node = op.get("node") or self.guess
        if node not in self.nodes:
            raise Definite(f"unknown-node: {node}")
        try:
            status, answer = self.nodes[node].post(path, body, op["timeout_ms"] / 1000)
        except (Definite, Indefinite):
            self.avoid(node)
            raise
        if status == 200:
            return answer
        if answer.get("error") == "not-leader" and answer.get("leader") in self.nodes:
            self.guess = answer["leader"]
        elif answer.get("error") in ("not-leader", "unavailable"):
            self.avoid(node)
        raise refused(answer)

    def avoid(self, node):
        names = list(self.nodes)
        if self.guess == node:
            self.guess = names[(names.index(node) + 1) % len(names)]

    # Registers.

    def read(self, op, key, _value):
        try:
            return self.ask(op, "/kv/get", {"key": key})["value"]
        except Indefinite as error:
            raise Definite(str(error)) from error  # a read changes nothing

    def write(self, op, key, value):
        self.ask(op, "/kv/put", {"key": key, "value": value})
        return value

    def cas(self, op, key, value):
        self.ask(op, "/kv/cas", {"key": key, "old": value[0], "new": value[1]})
        return value

    # Locks and elections.

    def acquire(self, op, key, value):
        sent = time.monotonic()  # the lease counts from here, not from the answer
        try:
            session = self.ask(op, "/session/open", {"ttl_ms": value["ttl_ms"]})["session"]
        except Indefinite as error:
            raise Definite(str(error)) from error  # no lock was asked for yet
        if self.workload == "leader":
            body = {"key": key, "session": session, "value": str(op["process"])}
            token = self.ask(op, "/leader/campaign", body)["token"]
        else:
            token = self.ask(op, "/lock/acquire", {"key": key, "session": session})["token"]
        self.held[token] = (key, session, sent + value["ttl_ms"] / 1000)
        return {"token": token}

    def renew(self, op, key, value):
        sent = time.monotonic()
        token, (lock, session, _) = self.lease(key, value)
        try:
            self.ask(op, "/session/renew", {"session": session})
        except Definite as error:
            if str(error) != "no-session":
                raise
            self.lose(token)
            raise Definite("not-held") from error
        self.held[token] = (lock, session, sent + value["ttl_ms"] / 1000)

    def release(self, op, key, value):
        token, (lock, session, _) = self.lease(key, value)
        path = "/leader/resign" if self.workload == "leader" else "/lock/release"
        try:
            self.ask(op, path, {"key": lock, "session": session, "token": token})
        except Definite as error:
            if str(error) != "not-holder":
                raise
            del self.held[token]
            raise Definite("not-held") from error
        del self.held[token]

    def lease(self, key, value):
        """The lease that an operation is about: that of its token, or of its key."""
        wanted = (value or {}).get("token")
        for token, lease in self.held.items():
            if token == wanted or (wanted is None and lease[0] == key):
                return token, lease
        raise Definite("not-held")

    def lose(self, token):
        key, _, _ = self.held.pop(token)
        say({"x": "event", "f": "lost", "process": self.process, "key": key,
             "value": {"token": token}})

    # The vault, which a lock protects.

    def check(self, key, value):
        """What a holder does before it writes; returns the token to show."""
        if self.params.get("holder") == "deadline":
            token, (_, _, deadline) = self.lease(key, value)
            if time.monotonic() >= deadline:
                self.lose(token)
                raise Definite("deadline-passed")
        else:
            token = (value or {}).get("token") or self.lease(key, value)[0]
        time.sleep(seconds(self.params.get("check-to-write-pause", 0)))
        return token

    def ask_vault(self, op, path, body):
        if self.vault is None:
            raise Definite("no-vault")
        status, answer = self.vault.post(path, body, op["timeout_ms"] / 1000)
        if status != 200:
            raise refused(answer)
        return answer

    def put(self, op, key, value):
        token = self.check(key, value)
        answer = self.ask_vault(op, "/put", {"key": key, "v": value["v"], "token": token})
        return {"v": value["v"], "token": token, "seq": answer["seq"]}

    def get(self, op, key, _value):
        return self.ask_vault(op, "/get", {"key": key})


FUNCTIONS = {
    "read": Worker.read,
    "write": Worker.write,
    "cas": Worker.cas,
    "acquire": Worker.acquire,
    "renew": Worker.renew,
    "release": Worker.release,
    "put": Worker.put,
    "get": Worker.get,
}


def seconds(duration):
    """A duration as schism writes it, such as "150ms" or "1m30s", or milliseconds."""
    if not isinstance(duration, str):
        return duration / 1000
    units = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
    parts = re.findall(r"([0-9.]+)([a-z]+)", duration)
    return sum(float(number) * units[unit] for number, unit in parts)


def refused(answer):
    """conclave and the vault say themselves whether a refusal is definite; silence is not."""
    kind = Definite if answer.get("definite") is True else Indefinite
    return kind(answer.get("error", "bad-answer"))


output = sys.stdout
sys.stdout = sys.stderr  # whatever prints from now on goes to the log, not between the lines
output_lock = threading.Lock()


def say(line):
    with output_lock:
        output.write(json.dumps(line) + "\n")
        output.flush()


def work(worker, operations):
    while (op := operations.get()) is not None:
        try:
            value = worker.invoke(op)
            say({"x": "ok", "id": op["id"], "value": value})
        except Definite as error:
            say({"x": "fail", "id": op["id"], "error": str(error)})
        except Indefinite as error:
            say({"x": "info", "id": op["id"], "error": str(error)})
        except Exception as error:  # our own mistake: nobody knows how far it got
            say({"x": "info", "id": op["id"], "error": f"client-error: {error!r}"})


def main():
    hello = json.loads(sys.stdin.readline())
    if hello["x"] != "hello" or hello["protocol"] != 1:
        sys.exit(f"expected a hello of protocol 1, got {hello}")
    say({"x": "hello", "client": "conclave-python 0.1", "can": list(FUNCTIONS),
         "max_in_flight": 64})
    workers = {}
    for line in sys.stdin:
        op = json.loads(line)  # a line that cannot be read ends the program, with a traceback
        thread = op.get("thread", op["process"])
        if thread not in workers:
            operations = queue.SimpleQueue()
            running = threading.Thread(target=work, args=(Worker(hello, thread), operations))
            running.daemon = True  # a bad line must end the program, not wait for the workers
            running.start()
            workers[thread] = (running, operations)
        workers[thread][1].put(op)
    for running, operations in workers.values():
        operations.put(None)
        running.join()


if __name__ == "__main__":
    main()
