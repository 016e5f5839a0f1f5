import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { Markdown } from "../../src/components/Markdown";

afterEach(cleanup);

test("HTML of a model's is text", () => {
  const { container } = render(
    <Markdown text={'<img src=x onerror="alert(1)"><script>alert(1)</script>'} />,
  );
  expect(container.querySelector("script, img")).toBeNull();
});

test("an image is a link: nothing is fetched that nobody asked for", () => {
  const { container } = render(<Markdown text="![cat](https://example.com/cat.png?secret)" />);
  expect(container.querySelector("img")).toBeNull();
  expect(screen.getByText("cat").getAttribute("href")).toBe("https://example.com/cat.png?secret");
});

test("a link that would run a script leads nowhere", () => {
  render(<Markdown text="[click](javascript:alert(1))" />);
  expect(screen.getByText("click").getAttribute("href") ?? "").not.toContain("javascript");
});

test("a link opens elsewhere, and tells nobody where it was", () => {
  render(<Markdown text="[docs](https://example.com)" />);
  const link = screen.getByText("docs");
  expect(link.getAttribute("rel")).toContain("noopener");
  expect(link.getAttribute("rel")).toContain("noreferrer");
});

test("code has its language and can be copied", () => {
  render(<Markdown text={"```python\nprint(1)\n```"} />);
  expect(screen.getByText("python")).toBeDefined();
  expect(screen.getByLabelText("Copy code")).toBeDefined();
  expect(screen.getByText("print(1)").tagName).toBe("CODE");
});

test("a fence that is not closed yet is code already", () => {
  render(<Markdown text={"```\nline\n"} />);
  expect(screen.getByLabelText("Copy code")).toBeDefined();
});

test("code in a sentence stays in it", () => {
  render(<Markdown text="Use `x` here." />);
  expect(screen.queryByLabelText("Copy code")).toBeNull();
});

test("a table is one", () => {
  render(<Markdown text={"| a | b |\n|---|---|\n| 1 | 2 |"} />);
  expect(screen.getAllByRole("cell").map((cell) => cell.textContent)).toEqual(["1", "2"]);
});

test("code has the colours of its language", async () => {
  const { container } = render(<Markdown text={"```python\ndef f(): pass\n```"} />);
  await vi.waitUntil(() => container.querySelector(".hljs-keyword"));
  expect(container.querySelector("pre")?.textContent).toBe("def f(): pass");
});

test("a formula is MathML, and one that cannot be read is its source", async () => {
  const { container } = render(<Markdown text={"So \\(x^2\\), and $\\nothing{$."} />);
  await vi.waitUntil(() => container.querySelector("math msup"));
  expect(container.textContent).toContain("\\nothing{");
});

test("prices are no formulas", () => {
  const { container } = render(<Markdown text="From $5 to $10." />);
  expect(container.textContent).toBe("From $5 to $10.");
});

test("a footnote leads nowhere: the address is the conversation's", () => {
  const { container } = render(<Markdown text={"A claim[^1].\n\n[^1]: Its source."} />);
  expect(container.querySelector("a")).toBeNull();
  expect(container.textContent).toContain("Its source.");
});

test("each paragraph goes in the direction of its script", () => {
  render(<Markdown text={"مرحبا\n\nHello"} />);
  for (const text of ["مرحبا", "Hello"]) {
    expect(screen.getByText(text).getAttribute("dir")).toBe("auto");
  }
});

test("a model's headings are below the page's own", () => {
  render(<Markdown text={"# One\n\n## Two"} />);
  const ranks = screen.getAllByRole("heading").map((heading) => heading.tagName);
  expect(ranks).toEqual(["H3", "H4"]);
});
