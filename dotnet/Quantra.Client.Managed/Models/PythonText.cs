namespace Quantra.Client.Managed;

/// <summary>Formats lists and names for messages as Python does.</summary>
internal static class PythonText
{
    /// <summary>For example ['a', 'b'].</summary>
    public static string List(IEnumerable<string> names) => $"[{string.Join(", ", names.Select(Quote))}]";

    /// <summary>For example [1, 2].</summary>
    public static string List(IEnumerable<int> numbers) => $"[{string.Join(", ", numbers)}]";

    /// <summary>At most 80 characters in quotes.</summary>
    public static string Quote(string name) => $"'{(name.Length > 80 ? name[..80] : name)}'";
}
