// The API from the other side, with the token.

const place = "mpbond-token";

// takeToken takes the token that came behind the # into this tab's keeping and
// out of the address, and tells whether there is one.
export function takeToken() {
  const given = /^#token=([\w-]+)$/.exec(location.hash);
  if (given) {
    keepToken(given[1]);
    history.replaceState(null, "", location.pathname + "#overview");
  }
  return sessionStorage.getItem(place) !== null;
}

export const keepToken = (token) => sessionStorage.setItem(place, token);
export const dropToken = () => sessionStorage.removeItem(place);

// Problem is an answer that is an error.
export class Problem extends Error {
  constructor(status, p) {
    super(p.detail || p.title || "the answer is an error: " + status);
    this.status = status;
    this.kind = p.kind;
    this.hint = p.hint;
    this.line = p.line; // of a text that cannot be used
    this.column = p.column;
    this.nearest = p.nearest;
  }
}

// request asks, and gives the answer if it is no error.
export async function request(method, path, body, signal, accept) {
  const headers = { Authorization: "Bearer " + sessionStorage.getItem(place) };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (accept) headers.Accept = accept;
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal, credentials: "omit", cache: "no-store" });
  } catch (e) {
    if (signal?.aborted) throw e;
    throw new Problem(0, { detail: "mpbond does not answer", hint: "does it still run?" });
  }
  if (answer.ok) return answer;
  throw new Problem(answer.status, await answer.json().catch(() => ({})));
}

export const get = async (path) => (await request("GET", path)).json();
export const post = async (path, body) => {
  const answer = await request("POST", path, body);
  return answer.status === 204 ? null : answer.json();
};

// events hands on changes as they happen, until signal says so or mpbond ends.
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
