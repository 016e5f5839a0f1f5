import hooks from "eslint-plugin-react-hooks";
import typescript from "typescript-eslint";

export default typescript.config(
  { ignores: ["node_modules"] },
  ...typescript.configs.strict,
  hooks.configs.flat.recommended,
);
