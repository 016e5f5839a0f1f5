import { expect, test } from "vitest";
import { fieldsOf } from "../../src/state/preferences";

test("a schema becomes a strict response format", () => {
  expect(fieldsOf({ schema: '{"type":"object"}', more: '{"stop":["x"]}' })).toEqual({
    stop: ["x"],
    response_format: {
      type: "json_schema",
      json_schema: { name: "answer", schema: { type: "object" }, strict: true },
    },
  });
});

test("what is no JSON object is an error that names the field", () => {
  expect(() => fieldsOf({ schema: "{", more: "" })).toThrow(/^JSON schema: /);
  expect(() => fieldsOf({ schema: "", more: "[1]" })).toThrow(
    "Further fields: expected a JSON object",
  );
});

test("nothing chosen adds nothing", () => {
  expect(fieldsOf({ schema: " ", more: "" })).toEqual({});
});
