namespace Quantra.Client;

/// <summary>
/// Value equality of records. Each record lists its properties as parts, with its collections wrapped. Two NaN are equal, as in .NET's own
/// value equality.
/// </summary>
internal static class ValueEquality
{
    /// <summary>Wraps a list, equal to another with the same elements in the same order.</summary>
    public static object? Of<T>(IReadOnlyList<T>? list) => list is null ? null : new Elements<T>(list);

    /// <summary>Wraps an array, equal to another with the same elements.</summary>
    public static object Of<T>(ReadOnlyMemory<T> array)
        where T : IEquatable<T> => new Array<T>(array);

    public static object? Of<T>(ReadOnlyMemory<T>? array)
        where T : IEquatable<T> => array is { } given ? Of(given) : null;

    /// <summary>Wraps a dictionary, equal to another with the same keys in any order and equal values.</summary>
    public static object? Of<T>(IReadOnlyDictionary<string, T>? entries) => Of(entries, value => value);

    public static object? Of<T>(IReadOnlyDictionary<string, ReadOnlyMemory<T>>? entries)
        where T : IEquatable<T> => Of(entries, value => Of(value));

    public static object? Of<T>(IReadOnlyDictionary<string, IReadOnlyList<T>>? entries) => Of(entries, value => Of(value));

    /// <summary>Whether two records of one type have equal parts.</summary>
    public static bool AreEqual(object?[] one, object?[] other) => one.SequenceEqual(other);

    /// <summary>Hashes all parts.</summary>
    public static int Hash(IEnumerable<object?> parts)
    {
        var hash = default(HashCode);
        foreach (var part in parts)
            hash.Add(part);
        return hash.ToHashCode();
    }

    private static Entries? Of<T>(IReadOnlyDictionary<string, T>? entries, Func<T, object?> part) =>
        entries is null ? null : new Entries(entries.ToDictionary(entry => entry.Key, entry => part(entry.Value)));

    private sealed class Elements<T>(IReadOnlyList<T> list)
    {
        private IReadOnlyList<T> List { get; } = list;

        public override bool Equals(object? obj) => obj is Elements<T> other && List.SequenceEqual(other.List);

        public override int GetHashCode() => Hash(List.Cast<object?>());
    }

    private sealed class Array<T>(ReadOnlyMemory<T> array)
        where T : IEquatable<T>
    {
        private ReadOnlyMemory<T> Values { get; } = array;

        public override bool Equals(object? obj) => obj is Array<T> other && Values.Span.SequenceEqual(other.Values.Span);

        /// <summary>Hashes length and ends only, because a panel may have millions of numbers.</summary>
        public override int GetHashCode() =>
            Values.IsEmpty ? 0 : HashCode.Combine(Values.Length, Values.Span[0], Values.Span[^1]);
    }

    private sealed class Entries(Dictionary<string, object?> parts)
    {
        private Dictionary<string, object?> Parts { get; } = parts;

        public override bool Equals(object? obj) =>
            obj is Entries other
            && Parts.Count == other.Parts.Count
            && Parts.All(entry => other.Parts.TryGetValue(entry.Key, out var value) && Equals(entry.Value, value));

        public override int GetHashCode() => Hash(Parts.Keys.Order(StringComparer.Ordinal));
    }
}
