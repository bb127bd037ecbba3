using System.Globalization;
using System.Reflection;
using System.Runtime.CompilerServices;

namespace Quantra.Client.Tests;

/// <summary>The public API of an assembly as text: one line per public or protected type and member.</summary>
internal static class PublicApi
{
    private const BindingFlags Declared =
        BindingFlags.Public | BindingFlags.NonPublic | BindingFlags.Instance | BindingFlags.Static | BindingFlags.DeclaredOnly;

    private static readonly NullabilityInfoContext Nullability = new();

    private static readonly Dictionary<Type, string> Keywords = new()
    {
        [typeof(void)] = "void",
        [typeof(bool)] = "bool",
        [typeof(int)] = "int",
        [typeof(double)] = "double",
        [typeof(float)] = "float",
        [typeof(string)] = "string",
        [typeof(object)] = "object",
    };

    /// <summary>Sorted by type, then by member.</summary>
    public static string[] Of(Assembly assembly) =>
        [.. assembly.GetExportedTypes()
            .OrderBy(type => type.FullName, StringComparer.Ordinal)
            .SelectMany(type => Members(type).Order(StringComparer.Ordinal).Prepend(Heading(type)))];

    private static string Heading(Type type)
    {
        string[] bases = [.. Bases(type).Select(Name).Order(StringComparer.Ordinal)];
        return $"{type.FullName}: {Kind(type)}{(bases.Length > 0 ? " : " : "")}{string.Join(", ", bases)}";
    }

    private static string Kind(Type type) => type switch
    {
        { IsInterface: true } => "interface",
        { IsEnum: true } => "enum",
        { IsValueType: true } => type.IsDefined(typeof(IsReadOnlyAttribute)) ? "readonly struct" : "struct",
        { IsAbstract: true, IsSealed: true } => "static class",
        { IsSealed: true } => "sealed class",
        { IsAbstract: true } => "abstract class",
        _ => "class",
    };

    /// <summary>The base class, unless it is implied by the kind of type, and all public interfaces.</summary>
    private static IEnumerable<Type> Bases(Type type)
    {
        Type?[] usual = [null, typeof(object), typeof(ValueType), typeof(Enum)];
        if (type.IsEnum)
            return [Enum.GetUnderlyingType(type)];
        var interfaces = type.GetInterfaces().Where(one => one.IsVisible);
        return usual.Contains(type.BaseType) ? interfaces : interfaces.Prepend(type.BaseType!);
    }

    private static IEnumerable<string> Members(Type type) =>
    [
        .. type.GetFields(Declared).Where(field => field.IsPublic || field.IsFamily).Where(field => !field.IsSpecialName).Select(Line),
        .. type.GetProperties(Declared).Where(property => property.GetAccessors(nonPublic: true).Any(IsOffered)).Select(Line),
        .. type.GetConstructors(Declared).Where(IsOffered).Select(method => $"{Owner(method)}({Parameters(method)})"),
        .. type.GetMethods(Declared).Where(IsOffered).Where(method => !IsAccessor(method) && method.Name != "<Clone>$").Select(Line),
    ];

    private static bool IsOffered(MethodBase method) => method.IsPublic || method.IsFamily || method.IsFamilyOrAssembly;

    private static bool IsAccessor(MethodInfo method) =>
        method.IsSpecialName && !method.Name.StartsWith("op_", StringComparison.Ordinal);

    private static string Line(FieldInfo field)
    {
        var value = field.IsLiteral ? $" = {Text(field.GetRawConstantValue())}" : "";
        var kind = field.IsLiteral ? "const " : field.IsStatic ? "static " : "";
        return $"{Owner(field)}.{field.Name}: {kind}{Name(Nullability.Create(field))}{value}";
    }

    private static string Line(PropertyInfo property)
    {
        var accessors = property.GetAccessors(nonPublic: true).Where(IsOffered).Select(Accessor).Order(StringComparer.Ordinal);
        var required = property.IsDefined(typeof(RequiredMemberAttribute)) ? "required " : "";
        var kind = Modifiers(property.GetAccessors(nonPublic: true)[0]);
        return $"{Owner(property)}.{property.Name}: {required}{kind}{Name(Nullability.Create(property))} {{ {string.Join(" ", accessors)} }}";
    }

    private static string Accessor(MethodInfo method)
    {
        var init = method.ReturnParameter.GetRequiredCustomModifiers().Contains(typeof(IsExternalInit));
        var access = method.IsPublic ? "" : "protected ";
        return access + (method.Name.StartsWith("get_", StringComparison.Ordinal) ? "get;" : init ? "init;" : "set;");
    }

    private static string Line(MethodInfo method)
    {
        var returned = Name(Nullability.Create(method.ReturnParameter));
        return $"{Owner(method)}.{method.Name}({Parameters(method)}): {Modifiers(method)}{returned}";
    }

    private static string Modifiers(MethodInfo method)
    {
        var access = method.IsPublic ? "" : "protected ";
        if (method.IsStatic)
            return access + "static ";
        if (method.DeclaringType!.IsInterface)
            return access;
        if (method.GetBaseDefinition() != method)
            return access + "override ";
        return access + (method is { IsVirtual: true, IsFinal: false } ? method.IsAbstract ? "abstract " : "virtual " : "");
    }

    private static string Parameters(MethodBase method) => string.Join(", ", method.GetParameters().Select(Parameter));

    private static string Parameter(ParameterInfo parameter)
    {
        var kind = parameter.IsOut ? "out " : parameter.IsIn ? "in " : parameter.ParameterType.IsByRef ? "ref " : "";
        var optional = parameter.HasDefaultValue ? $" = {Text(parameter.DefaultValue)}" : "";
        return $"{kind}{Name(Nullability.Create(parameter))} {parameter.Name}{optional}";
    }

    private static string Owner(MemberInfo member) => member.DeclaringType!.FullName!;

    private static string Text(object? value) => value switch
    {
        null => "default",
        string text => $"\"{text}\"",
        _ => Convert.ToString(value, CultureInfo.InvariantCulture)!,
    };

    /// <summary>Formats a type in C# syntax, with a question mark for nullable ones.</summary>
    private static string Name(NullabilityInfo of)
    {
        var type = of.Type.IsByRef ? of.Type.GetElementType()! : of.Type;
        if (Nullable.GetUnderlyingType(type) is { } inner)
            return Name(inner) + "?";
        var mark = !type.IsValueType && of.ReadState == NullabilityState.Nullable ? "?" : "";
        if (of.ElementType is { } element)
            return $"{Name(element)}[]{mark}";
        return (of.GenericTypeArguments.Length > 0 ? Generic(type, of.GenericTypeArguments.Select(Name)) : Name(type)) + mark;
    }

    private static string Name(Type type)
    {
        if (Keywords.TryGetValue(type, out var keyword))
            return keyword;
        if (Nullable.GetUnderlyingType(type) is { } inner)
            return Name(inner) + "?";
        return type.IsGenericType ? Generic(type, type.GetGenericArguments().Select(Name)) : type.FullName ?? type.Name;
    }

    private static string Generic(Type type, IEnumerable<string> arguments) =>
        $"{type.Namespace}.{type.Name.Split('`')[0]}<{string.Join(", ", arguments)}>";
}
