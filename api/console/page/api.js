// SPDX-License-Identifier: Apache-2.0
// Requests to the API with the token.

const tokenKey = "mpbond-token";

// takeToken stores the token of the address in this tab and removes it from the address. It returns
// whether there is a token.
export function takeToken() {
  const given = /^#token=([\w-]+)$/.exec(location.hash);
  if (given) {
    keepToken(given[1]);
    history.replaceState(null, "", location.pathname + "#overview");
  }
  return sessionStorage.getItem(tokenKey) !== null;
}

export const keepToken = (token) => sessionStorage.setItem(tokenKey, token);
export const dropToken = () => sessionStorage.removeItem(tokenKey);

// Problem is an error answer.
export class Problem extends Error {
  constructor(status, p) {
    super(p.detail || p.title || "the answer is an error: " + status);
    this.status = status;
    this.kind = p.kind;
    this.hint = p.hint;
    this.line = p.line; // of an unusable text
    this.column = p.column;
    this.nearest = p.nearest;
  }
}

// request sends a request and returns the answer, or throws a Problem.
export async function request(method, path, body, signal, accept) {
  const headers = { Authorization: "Bearer " + sessionStorage.getItem(tokenKey) };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (accept) headers.Accept = accept;
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal,
      credentials: "omit", cache: "no-store" });
  } catch (e) {
    if (signal?.aborted) throw e;
    throw new Problem(0, { detail: "mpbond does not answer", hint: "check whether it is still running" });
  }
  if (answer.ok) return answer;
  throw new Problem(answer.status, await answer.json().catch(() => ({})));
}

export const get = async (path) => (await request("GET", path)).json();
export const post = async (path, body) => {
  const answer = await request("POST", path, body);
  return answer.status === 204 ? null : answer.json();
};

// events passes events to take until signal aborts or mpbond ends.
export async function events(after, take, signal) {
  const answer = await request("GET", "/v2/events" + (after === undefined ? "" : "?after=" + after), undefined, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", kind = "", data = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith("event:")) kind = line.slice(6).trim();
      else if (line.startsWith("data:")) data = line.slice(5);
      else if (line === "") {
        if (data) take(kind, JSON.parse(data));
        kind = data = "";
      }
    }
  }
}
