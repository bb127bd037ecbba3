namespace Quantra.Client;

/// <summary>An axis of an array with named positions.</summary>
internal static class Axis
{
    /// <summary>The position of a name, or an exception that lists the names that exist.</summary>
    public static int IndexOf<T>(IReadOnlyList<T> axis, T name, string parameter)
        where T : notnull
    {
        for (var index = 0; index < axis.Count; index++)
        {
            if (axis[index].Equals(name))
                return index;
        }

        throw new ArgumentException(
            FormattableString.Invariant($"there is no {parameter} {name}; there are {string.Join(", ", axis)}"),
            parameter);
    }
}
