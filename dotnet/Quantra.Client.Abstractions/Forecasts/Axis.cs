namespace Quantra.Client;

/// <summary>An axis of an array with named positions.</summary>
internal static class Axis
{
    /// <summary>Returns the position of a name; throws an exception that lists the existing names.</summary>
    public static int IndexOf<T>(IReadOnlyList<T> axis, T name, string parameter)
        where T : notnull
    {
        for (var index = 0; index < axis.Count; index++)
        {
            if (axis[index].Equals(name))
                return index;
        }

        throw new ArgumentException(
            FormattableString.Invariant($"unknown {parameter} {name}; choose one of {string.Join(", ", axis)}"),
            parameter);
    }
}
