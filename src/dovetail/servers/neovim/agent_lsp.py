"""The tools for agents that language servers answer."""

from typing import TYPE_CHECKING, Any

from dovetail import Server, ToolError
from dovetail.servers.neovim import lsp
from dovetail.servers.neovim.lsp import Action, Location, Lsp, Symbol
from dovetail.servers.neovim.places import inside

if TYPE_CHECKING:
    from dovetail.servers.neovim.agent import Office

__all__ = ["add_lsp"]


def add_lsp(server: Server, office: "Office", write: bool) -> None:
    _add_questions(server, office)
    if write:
        _add_changes(server, office)


async def _lsp(office: "Office") -> Lsp:
    return (await office.workplace()).lsp


def _add_questions(server: Server, office: "Office") -> None:
    @server.tool(read_only=True)
    async def hover(path: str, line: int, column: int) -> str:
        """Get documentation and type of what is at a place in an open file.

        Args:
            path: Path of the file
            line: Line, from 1
            column: Column, from 1
        """
        place = await office.path(path)
        answers = await (await _lsp(office)).ask("textDocument/hover", place, (line, column))
        return lsp.hover_text(answers) or "There is nothing to say about this place"

    @server.tool(read_only=True)
    async def definition(path: str, line: int, column: int) -> list[Location]:
        """Find where the thing at a place in an open file is defined.

        Args:
            path: Path of the file
            line: Line, from 1
            column: Column, from 1
        """
        place = await office.path(path)
        answers = await (await _lsp(office)).ask("textDocument/definition", place, (line, column))
        return lsp.locations(answers)

    @server.tool(read_only=True)
    async def references(
        path: str, line: int, column: int, include_declaration: bool = True
    ) -> list[Location]:
        """Find where the thing at a place in an open file is used.

        Args:
            path: Path of the file
            line: Line, from 1
            column: Column, from 1
            include_declaration: Whether its declaration is one of them
        """
        place = await office.path(path)
        answers = await (await _lsp(office)).ask(
            "textDocument/references",
            place,
            (line, column),
            context={"includeDeclaration": include_declaration},
        )
        return lsp.locations(answers)

    @server.tool(read_only=True)
    async def symbols(path: str = "", query: str = "") -> list[Symbol]:
        """List the symbols of an open file, or find symbols of the whole project by name.

        Args:
            path: Path of a file
            query: Part of a name, if no file is given
        """
        asking = await _lsp(office)
        if not path:
            return lsp.symbols(await asking.ask("workspace/symbol", None, None, query=query))
        place = await office.path(path)
        return lsp.symbols(await asking.ask("textDocument/documentSymbol", place, None), place)

    @server.tool(read_only=True)
    async def code_actions(path: str, line: int, column: int = 1) -> list[Action]:
        """List the fixes and refactorings that are offered at a place in an open file.

        Args:
            path: Path of the file
            line: Line, from 1
            column: Column, from 1
        """
        offered = await _offered(office, path, line, column)
        return [Action(action["title"], action.get("kind") or "") for _, action in offered]


async def _offered(
    office: "Office", path: str, line: int, column: int
) -> list[tuple[int, dict[str, Any]]]:
    place = await office.path(path)
    answers = await (await _lsp(office)).ask(
        "textDocument/codeAction", place, (line, column), context={"diagnostics": True}
    )
    return lsp.actions(answers)


def _add_changes(server: Server, office: "Office") -> None:
    @server.tool
    async def rename(path: str, line: int, column: int, new_name: str) -> list[str]:
        """Rename the thing at a place in an open file, everywhere. Nothing is saved.

        Args:
            path: Path of the file
            line: Line, from 1
            column: Column, from 1
            new_name: Its new name

        Returns:
            The files that were changed
        """
        place = await office.path(path, to_write=True)
        answers = await (await _lsp(office)).ask(
            "textDocument/rename", place, (line, column), newName=new_name
        )
        for answer in answers:
            if answer.result:
                return await _apply(office, answer.client, answer.result)
        raise ToolError("There is nothing to rename at this place")

    @server.tool
    async def apply_code_action(path: str, line: int, title: str, column: int = 1) -> list[str]:
        """Apply one of the code actions offered at a place. Nothing is saved.

        Args:
            path: Path of the file
            line: Line, from 1
            title: Title of the action
            column: Column, from 1

        Returns:
            The files that were changed
        """
        for client, action in await _offered(office, path, line, column):
            if action["title"] == title:
                return await _perform(office, client, action)
        raise ToolError(f"No code action there is called {title!r}")


async def _perform(office: "Office", client: int, action: dict[str, Any]) -> list[str]:
    if not action.get("edit") and "data" in action:
        action = await (await _lsp(office)).resolve(client, action)
    edit, command = action.get("edit"), action.get("command")
    files = await _apply(office, client, edit) if edit else []
    if command:
        await office.act("lsp", "execute", client, command)
    return files


async def _apply(office: "Office", client: int, edit: dict[str, Any]) -> list[str]:
    """A language server may want to change anything; only the workspace is ours to change."""
    model = (await office.workplace()).model
    folders = (await model.folders()).value
    for path in await office.read("lsp", "edited_files", edit, kind=list[str]):
        if not model.settings.get("outside") and not inside(path, folders):
            raise ToolError(f"That would change {path}, outside the workspace folders")
    done = await office.act("lsp", "apply", client, edit)
    return list(done["files"])
