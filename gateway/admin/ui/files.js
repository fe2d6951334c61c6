// Files that a person hands to an agent, as the protocols carry them.

export function dataUri(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.replace("data:;", "data:application/octet-stream;"));
    reader.onerror = () => reject(new Error(`${file.name} cannot be read`));
    reader.readAsDataURL(file);
  });
}

// A content block of MCP and the Agent Client Protocol.
export async function block(file) {
  const mimeType = file.type || "application/octet-stream";
  const [kind] = mimeType.split("/");
  const data = (await dataUri(file)).split(",")[1];
  if (kind === "image" || kind === "audio") return { type: kind, mimeType, data };
  const uri = `file:///${encodeURIComponent(file.name)}`;
  return { type: "resource", resource: kind === "text" ? { uri, mimeType, text: await file.text() } : { uri, mimeType, blob: data } };
}

// An input with the files in a member of its own: of no protocol, but taken by the gateway for agents that take files.
export async function withFiles(input, files) {
  return files.length ? { ...input, attachments: await Promise.all(files.map(block)) } : input;
}

// The content of a block as a URL that can be fetched.
export function address({ mimeType, data, resource }) {
  const type = resource?.mimeType ?? mimeType ?? "text/plain";
  return data ?? resource?.blob ? `data:${type};base64,${data ?? resource.blob}` : `data:${type},${encodeURIComponent(resource?.text ?? "")}`;
}
